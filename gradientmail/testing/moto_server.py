"""``python moto_server.py PORT BUCKET``: moto's S3, one request at a time.

As it comes, moto looks and then writes, so that about one of 600 races for a key has two winners.
"""

import io
import logging
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class OneAtATime:
    """A WSGI application behind a lock; a request's body is read before the lock is taken."""

    def __init__(self, application: "WSGIApplication") -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(
        self, environ: "WSGIEnvironment", start_response: "StartResponse"
    ) -> Iterable[bytes]:
        """Answer one request."""
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._lock:
            return [b"".join(self._application(environ, start_response))]


def main() -> None:
    """Serve until killed."""
    port, bucket = int(sys.argv[1]), sys.argv[2]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, "us-east-1")
    make_server("127.0.0.1", port, application, threaded=True).serve_forever()


if __name__ == "__main__":
    main()
