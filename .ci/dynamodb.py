"""
A stand-in for DynamoDB, by moto. Writes its URL, and serves until it is killed.

DynamoDB compares and writes in one step, and moto in two: so it does one request at a
time.
"""

import io
import logging
import sys
import threading

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

moto, one_at_a_time = create_backend_app("dynamodb"), threading.Lock()


def answer(environ, start_response):
    """Let moto answer when its turn comes, with all that the client has to send."""
    sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(sent)
    with one_at_a_time:
        return list(moto(environ, start_response))


logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = make_server("127.0.0.1", int((sys.argv[1:] or [0])[0]), answer, threaded=True)
sys.stdout.write(f"http://127.0.0.1:{server.port}")
sys.stdout.flush()
server.serve_forever()
