"""One record of every kind, and the bytes it must have for ever: runs in buckets hold them.

Only a field that is added, with a default, may change bytes here: it is one that older readers
ignore. Any other change needs a new number after the slash of ``kind``.
"""

import msgspec

from gradientmail.config import RunSettings
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.control import Boundary, Stop
from gradientmail.records.estimates import Estimates
from gradientmail.records.head import Head
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import (
    FragmentSpec,
    Manifest,
    PayloadRef,
    PlanEntry,
    TensorSpec,
)
from gradientmail.records.presence import Presence

NONCE = "0123456789abcdef0123456789abcdef"
DIGEST = f"xxh3_128:{NONCE}"
MAIL_KEY = f"mail/0001/0000000006/alice/{NONCE}.0000-of-0001.safetensors"


def ref(role: str) -> PayloadRef:
    key = f"fragments/0001/0000000007/{NONCE}.{role}.safetensors"
    return PayloadRef(key=key, size_bytes=20480, digest=DIGEST)


MANIFEST = Manifest(
    run="r1",
    created_at=1700000000.5,
    created_by="gradientmail 0.1.0",
    settings=RunSettings(algorithm="diloco", fragments=2, downlink="I8"),
    tensors=(
        TensorSpec(
            name="wte.weight",
            shape=(256, 64),
            dtype="bfloat16",
            kind="parameter",
            trainable=True,
        ),
        TensorSpec(
            name="head.weight",
            shape=(256, 64),
            dtype="bfloat16",
            kind="parameter",
            trainable=True,
            alias="wte.weight",
        ),
        TensorSpec(name="bn.var", shape=(), dtype="float32", kind="buffer", trainable=True),
    ),
    fragments=(
        FragmentSpec(entries=(PlanEntry("wte.weight", 0, 128),), params=ref("params")),
        FragmentSpec(entries=(PlanEntry("bn.var"),), params=ref("params")),
    ),
    program="gradientmail.programs.gpt:program",
)

COMMIT = RoundRecord(
    run="r1",
    fragment=1,
    version=7,
    parent=DIGEST,
    params=ref("params"),
    outer=ref("outer"),
    update=ref("update"),
    participants=(
        Participant(
            learner="alice",
            incarnation=NONCE,
            nonce=NONCE,
            base=6,
            steps=10,
            tokens=100,
            weight=1000.0,
            norm=0.125,
            clip=1.0,
            key=MAIL_KEY,
            digest=DIGEST,
        ),
    ),
    rejected=(Rejection(key=MAIL_KEY, reason='made against another version than "7"'),),
    cosine=-0.25,
    norm=1e-07,
    applied={"bob": 5, "alice": 6},
    estimates=Estimates(step_s=0.1, sync_s=4.0),
    closer="c-1",
    term=3,
    nonce=NONCE,
    closed_at=1700000001.0,
)

EMPTY_COMMIT = RoundRecord(
    run="r1",
    fragment=0,
    version=1,
    parent=DIGEST,
    params=ref("params"),
    empty=True,
    closer="c-1",
    term=1,
    nonce=NONCE,
)

CONTRIBUTION = ContributionRecord(
    run="r1",
    learner="alice",
    incarnation=NONCE,
    fragment=1,
    base=6,
    anchor=DIGEST,
    steps=10,
    tokens=100,
    step_s=0.25,
    final=False,
    precision="I8",
    norms=(0.125, None),
    digest=DIGEST,
    nonce=NONCE,
)

PRESENCE = Presence(
    run="r1",
    learner="alice",
    incarnation=NONCE,
    count=41,
    versions=(6, 7),
    steps=1000,
    tokens=9007199254740991,
    step_s=0.25,
    loss=2.5,
    posted=8,
    applied=7,
    rejected="caf\u00e9 / \u2028",
    seen_at=1700000000.0,
)

GOLDEN: dict[str, tuple[msgspec.Struct, bytes]] = {
    "manifest": (
        MANIFEST,
        b'{"created_at":1700000000.5,"created_by":"gradientmail 0.1.0",'
        b'"fragments":[{"entries":[{"end_row":128,"name":"wte.weight","start_row":0}],'
        b'"params":{"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"key":"fragments/0001/0000000007/0123456789abcdef0123456789abcdef.params.safetensors",'
        b'"size_bytes":20480}},{"entries":[{"end_row":null,"name":"bn.var","start_row":0}],'
        b'"params":{"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"key":"fragments/0001/0000000007/0123456789abcdef0123456789abcdef.params.safetensors",'
        b'"size_bytes":20480}}],"kind":"manifest/1",'
        b'"program":"gradientmail.programs.gpt:program","run":"r1",'
        b'"settings":{"algorithm":"diloco","alignment":"overwrite","buffers":"averaged",'
        b'"clip_ratio":10.0,"downlink":"I8","error_feedback":true,"error_feedback_decay":1.0,'
        b'"exchange":"closer","flush_on_close":false,"fragments":2,"global_batch":null,'
        b'"gossip":"average","gossip_settings":{},"grace_s":null,"guard":"off",'
        b'"guard_settings":{},"in_flight":1,"keep_versions":3,"lease_s":30.0,'
        b'"local_steps":"fixed","max_staleness":0,"merge":"weighted-mean","merge_settings":{},'
        b'"mixing":0.0,"modules":{},"outer":"nesterov","outer_clip_norm":null,"outer_lr":null,'
        b'"outer_schedule":"constant","outer_schedule_settings":{},"outer_settings":{},'
        b'"overlap_steps":0,"plan":"bytes","poll_s":1.0,"presence_s":60.0,"proximal":0.0,'
        b'"published":"F32","quorum":1,"retain":false,"rounding":"nearest","seed":0,'
        b'"selection":"all","selection_settings":{},"stop_after_rounds":null,"sync_every":500,'
        b'"topology":"ring","topology_settings":{},"uplink":"F32","weights":"uniform",'
        b'"weights_settings":{}},'
        b'"tensors":[{"alias":null,"dtype":"bfloat16","kind":"parameter","name":"wte.weight",'
        b'"shape":[256,64],"trainable":true},{"alias":"wte.weight","dtype":"bfloat16",'
        b'"kind":"parameter","name":"head.weight","shape":[256,64],"trainable":true},'
        b'{"alias":null,"dtype":"float32","kind":"buffer","name":"bn.var","shape":[],'
        b'"trainable":true}]}',
    ),
    "commit": (
        COMMIT,
        b'{"applied":{"alice":6,"bob":5},"closed_at":1700000001.0,"closer":"c-1",'
        b'"cosine":-0.25,"estimates":{"quorum_s":null,"step_s":0.1,"sync_s":4.0},"fragment":1,'
        b'"kind":"commit/1","nonce":"0123456789abcdef0123456789abcdef","norm":1e-7,'
        b'"outer":{"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"key":"fragments/0001/0000000007/0123456789abcdef0123456789abcdef.outer.safetensors",'
        b'"size_bytes":20480},"params":{"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"key":"fragments/0001/0000000007/0123456789abcdef0123456789abcdef.params.safetensors",'
        b'"size_bytes":20480},"parent":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"participants":[{"base":6,"clip":1.0,'
        b'"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"incarnation":"0123456789abcdef0123456789abcdef",'
        b'"key":"mail/0001/0000000006/alice/0123456789abcdef0123456789abcdef.0000-of-0001.safetensors",'
        b'"learner":"alice","nonce":"0123456789abcdef0123456789abcdef","norm":0.125,"steps":10,'
        b'"tokens":100,"weight":1000.0}],'
        b'"rejected":[{"key":"mail/0001/0000000006/alice/0123456789abcdef0123456789abcdef.0000-of-0001.safetensors",'
        b'"reason":"made against another version than \\"7\\""}],"run":"r1","term":3,'
        b'"update":{"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"key":"fragments/0001/0000000007/0123456789abcdef0123456789abcdef.update.safetensors",'
        b'"size_bytes":20480},"version":7}',
    ),
    "empty commit": (
        EMPTY_COMMIT,
        b'{"closer":"c-1","empty":true,"fragment":0,"kind":"commit/1",'
        b'"nonce":"0123456789abcdef0123456789abcdef",'
        b'"params":{"digest":"xxh3_128:0123456789abcdef0123456789abcdef",'
        b'"key":"fragments/0001/0000000007/0123456789abcdef0123456789abcdef.params.safetensors",'
        b'"size_bytes":20480},"parent":"xxh3_128:0123456789abcdef0123456789abcdef","run":"r1",'
        b'"term":1,"version":1}',
    ),
    "contribution": (
        CONTRIBUTION,
        b'{"anchor":"xxh3_128:0123456789abcdef0123456789abcdef","base":6,'
        b'"digest":"xxh3_128:0123456789abcdef0123456789abcdef","final":false,"fragment":1,'
        b'"incarnation":"0123456789abcdef0123456789abcdef","kind":"contribution/1",'
        b'"learner":"alice","nonce":"0123456789abcdef0123456789abcdef","norms":[0.125,null],'
        b'"precision":"I8","run":"r1","step_s":0.25,"steps":10,"tokens":100}',
    ),
    "presence": (
        PRESENCE,
        b'{"applied":7,"count":41,"incarnation":"0123456789abcdef0123456789abcdef",'
        b'"kind":"presence/1","learner":"alice","loss":2.5,"posted":8,'
        b'"rejected":"caf\xc3\xa9 / \xe2\x80\xa8","run":"r1","seen_at":1700000000.0,'
        b'"step_s":0.25,"steps":1000,"tokens":9007199254740991,"versions":[6,7]}',
    ),
    "head": (
        Head(run="r1", term=3, closer="c-1", versions=(7, 6), calling=(13,), stopping=True),
        b'{"calling":[13],"closer":"c-1","kind":"head/1","run":"r1","stopping":true,"term":3,'
        b'"versions":[7,6]}',
    ),
    "term": (
        Term(run="r1", term=3, closer="c-1", nonce=NONCE),
        b'{"closer":"c-1","kind":"term/1","nonce":"0123456789abcdef0123456789abcdef",'
        b'"run":"r1","term":3}',
    ),
    "beat": (
        Beat(term=3, closer="c-1", count=12),
        b'{"closer":"c-1","count":12,"kind":"beat/1","released":false,"term":3}',
    ),
    "last beat": (
        Beat(term=3, closer="c-1", count=13, released=True),
        b'{"closer":"c-1","count":13,"kind":"beat/1","released":true,"term":3}',
    ),
    "stop": (
        Stop(run="r1", reason="enough", nonce=NONCE),
        b'{"kind":"stop/1","nonce":"0123456789abcdef0123456789abcdef","reason":"enough",'
        b'"run":"r1"}',
    ),
    "boundary": (
        Boundary(run="r1", fragment=1, version=4, nonce=NONCE),
        b'{"fragment":1,"kind":"boundary/1","nonce":"0123456789abcdef0123456789abcdef",'
        b'"run":"r1","version":4}',
    ),
}
