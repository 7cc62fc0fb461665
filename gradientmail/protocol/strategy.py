"""Strategy documents: JSON in the form of serde's tagged enums, translated to run settings.

    {"type": "Federated", "num_clients": 10, "rounds": 50,
     "aggregation": {"method": "FedProx", "mu": 0.01},
     "client_selection": {"method": "Random", "fraction": 0.3}}

What a document leaves open has the default of the preset it names. A type, method or field that is
not built here is refused by its name.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

import msgspec

from gradientmail.config import AtLeastOne, AtLeastZero, nearest
from gradientmail.errors import SettingsError
from gradientmail.protocol.selection import clients

Rate = Annotated[float, msgspec.Meta(gt=0.0, le=100.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]
Settings = dict[str, Any]


class _Method(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="method"
):
    @property
    def settings(self) -> Settings:
        """The run settings it stands for."""
        raise NotImplementedError


# -- how a round is aggregated ------------------------------------------------------------------


class FedAvg(_Method, frozen=True, tag="FedAvg"):
    """The mean by samples."""

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"algorithm": "fedavg"}


class FedProx(_Method, frozen=True, tag="FedProx"):
    """FedAvg of learners that are held near the anchor."""

    mu: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"algorithm": "fedprox", "proximal": self.mu}


class FedAvgM(_Method, frozen=True, tag="FedAvgM"):
    """FedAvg with momentum."""

    learning_rate: Rate = 1.0
    momentum: Share = 0.9

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        own = {"momentum": self.momentum}
        return {
            "algorithm": "fedavgm",
            "outer": "heavy-ball",
            "outer_lr": self.learning_rate,
            "outer_settings": own,
        }


class _Adaptive(_Method, frozen=True):
    learning_rate: Rate = 0.1
    beta1: Share = 0.9
    beta2: Share = 0.99
    tau: Annotated[float, msgspec.Meta(ge=1e-12, le=1.0)] = 1e-3

    def _of(self, name: str, *own: str) -> Settings:
        return {
            "algorithm": f"fed{name}",
            "outer": name,
            "outer_lr": self.learning_rate,
            "outer_settings": {key: getattr(self, key) for key in own},
        }


class FedAdam(_Adaptive, frozen=True, tag="FedAdam"):
    """FedAvg's mean as the gradient of Adam."""

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return self._of("adam", "beta1", "beta2", "tau")


class FedYogi(_Adaptive, frozen=True, tag="FedYogi"):
    """FedAvg's mean as the gradient of Yogi."""

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return self._of("yogi", "beta1", "beta2", "tau")


class FedAdagrad(_Method, frozen=True, tag="FedAdagrad"):
    """FedAvg's mean as the gradient of Adagrad."""

    learning_rate: Rate = 0.1
    beta1: Share = 0.0
    tau: Annotated[float, msgspec.Meta(ge=1e-12, le=1.0)] = 1e-3

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        own = {"beta1": self.beta1, "tau": self.tau}
        return {
            "algorithm": "fedadagrad",
            "outer": "adagrad",
            "outer_lr": self.learning_rate,
            "outer_settings": own,
        }


class Median(_Method, frozen=True, tag="Median"):
    """The median of each number."""

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"algorithm": "fedavg", "merge": "coordinate-median"}


class TrimmedMean(_Method, frozen=True, tag="TrimmedMean"):
    """The mean without the ends."""

    trim: AtLeastZero = 1

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        own = {"trim": self.trim}
        return {"algorithm": "fedavg", "merge": "trimmed-mean", "merge_settings": own}


class Krum(_Method, frozen=True, tag="Krum"):
    """The contribution with the nearest neighbours."""

    byzantine: AtLeastZero = 1

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        own = {"byzantine": self.byzantine}
        return {"algorithm": "fedavg", "merge": "krum", "merge_settings": own}


Aggregation = (
    FedAvg | FedProx | FedAvgM | FedAdam | FedYogi | FedAdagrad | Median | TrimmedMean | Krum
)

# -- whom a round asks ----------------------------------------------------------------------------


class All(_Method, frozen=True, tag="All"):
    """Everyone."""

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"selection": "all"}


class Random(_Method, frozen=True, tag="Random"):
    """A share, others in each round."""

    fraction: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"selection": "random", "selection_settings": {"fraction": self.fraction}}


class Tags(_Method, frozen=True, tag="Tags"):
    """Those that have all of some tags."""

    tags: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"selection": "tags", "selection_settings": {"tags": list(self.tags)}}


# -- how steps are synchronized -------------------------------------------------------------------


class AllReduce(_Method, frozen=True, tag="AllReduce"):
    """Everyone's mean after each step."""

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {"algorithm": "all-reduce"}


class ParameterServer(_Method, frozen=True, tag="ParameterServer"):
    """Each contribution is a version of its own; late ones count less."""

    max_staleness: AtLeastZero = 4
    staleness_decay: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 1.0

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``."""
        return {
            "algorithm": "all-reduce",
            "quorum": 1,
            "grace_s": 0.0,
            "max_staleness": self.max_staleness,
            "keep_versions": self.max_staleness + 1,
            "weights": "tokens-by-staleness",
            "weights_settings": {"decay": self.staleness_decay},
        }


class Decentralized(_Method, frozen=True, tag="Decentralized"):
    """Neighbours mix parameters; there is no closer."""

    topology: str = "Ring"

    @property
    def settings(self) -> Settings:
        """See ``_Method.settings``: a topology's name here is words with hyphens."""
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", "-", self.topology).lower()
        return {"algorithm": "local-sgd", "exchange": "gossip", "topology": words}


# -- documents ------------------------------------------------------------------------------------


class _Type(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"
):
    pass


class Federated(_Type, frozen=True, tag="Federated"):
    """Learners with data of their own, of whom each round asks some."""

    num_clients: AtLeastOne
    rounds: AtLeastOne
    aggregation: Aggregation = FedAvg()
    client_selection: All | Random | Tags = All()

    @property
    def settings(self) -> Settings:
        """The run settings it stands for."""
        asked, count = self.client_selection, self.num_clients
        quorum = clients(asked.fraction, count) if isinstance(asked, Random) else count
        ends = {"quorum": quorum, "stop_after_rounds": self.rounds}
        return {**self.aggregation.settings, **asked.settings, **ends}


class Local(_Type, frozen=True, tag="Local"):
    """Everyone for itself."""

    @property
    def settings(self) -> Settings:
        """The run settings it stands for."""
        return {"algorithm": "local"}


class DataParallel(_Type, frozen=True, tag="DataParallel"):
    """Learners that synchronize after each step."""

    num_workers: AtLeastOne = 1
    rounds: AtLeastOne | None = None
    sync: AllReduce | ParameterServer | Decentralized = AllReduce()

    @property
    def settings(self) -> Settings:
        """The run settings it stands for."""
        return {
            "quorum": self.num_workers,
            "stop_after_rounds": self.rounds,
            **self.sync.settings,
        }


class Custom(_Type, frozen=True, tag="Custom"):
    """Run settings as they are, over a preset."""

    name: str
    settings: Settings = {}

    @property
    def chosen(self) -> Settings:
        """The run settings it stands for."""
        return {"algorithm": self.name, **self.settings}


Strategy = Federated | Local | DataParallel | Custom
_DECODER: Final = msgspec.json.Decoder(Strategy)


def strategy_settings(document: bytes | str) -> Settings:
    """Return the run settings that a strategy document stands for.

    Raises:
        SettingsError: it is no JSON, or names what is not built here; the message says what is.

    Example:
        >>> strategy_settings('{"type": "Local"}')
        {'algorithm': 'local'}
    """
    try:
        strategy = _DECODER.decode(document)
    except msgspec.ValidationError as error:
        raise SettingsError(_reason(str(error), document)) from error
    except msgspec.DecodeError as error:
        raise SettingsError(f"it is no JSON: {error}") from error
    return strategy.chosen if isinstance(strategy, Custom) else strategy.settings


_PARTS: Final[Mapping[str, Any]] = {
    "": Strategy,
    "aggregation": Aggregation,
    "client_selection": All | Random | Tags,
    "sync": AllReduce | ParameterServer | Decentralized,
}
"""What may stand in each part of a document."""


def _reason(said: str, document: bytes | str) -> str:
    """Name what is not built here, and what is."""
    words, _, path = said.partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    if words.startswith("Invalid value"):
        part, _, tag = where.rpartition(".")
        value = _part(document, part)[tag]
        return f"{where} = {value!r} is not built here; there are: {', '.join(sorted(_in(part)))}"
    if "unknown field" in words:
        value = _part(document, where)
        kind = _in(where)[value["method" if where else "type"]]
        unknown = words.split("`")[1]
        words = f"it has no field {unknown!r}{nearest(unknown, kind.__struct_fields__)}"
    return f"{where}: {words}" if where else words


def _part(document: bytes | str, part: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(document)
    return found[part] if part else found


def _in(part: str) -> dict[str, type[msgspec.Struct]]:
    """Return what may stand in a part, by its tag."""
    return {str(one.__struct_config__.tag): one for one in get_args(_PARTS[part])}
