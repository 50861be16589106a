"""A storage that speaks S3: moto's server, which checks signatures and conditions; and a proxy before it with faults.

Buckets and keys are in memory. `faulty` lets a test define the outcome of each request. boto3 and moto are imported
at their first use: that takes a second, and most workers of a run need neither.
"""
import contextlib
import http.client
import json
import logging

from lib import wait
from lib.services import other

logging.getLogger("werkzeug").setLevel("ERROR")
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


class Storage:
    def __init__(self, port, key):
        self.port = port
        self.endpoint = f"http://127.0.0.1:{port}"
        self.key, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        self.client = client(self.endpoint, "s3", self.key, self.secret)

    def environment(self, endpoint=None):
        return {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint or self.endpoint}

    def put(self, bucket, key, body):
        self.client.put_object(Bucket=bucket, Key=key, Body=body)

    def keys(self, bucket, prefix=""):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [o["Key"] for page in pages for o in page.get("Contents", [])]

    def get(self, bucket, key):
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def uploads(self, bucket):
        return [u["Key"] for u in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


def client(endpoint, service, key, secret):
    import boto3
    from botocore.config import Config

    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key,
                        aws_secret_access_key=secret, config=Config(retries={"max_attempts": 1}))


@contextlib.contextmanager
def storage():
    """One with a user who may do everything; other users may do nothing."""
    import requests
    from moto import settings
    from moto.core.authorization import ActionAuthenticatorMixin
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        port = server.get_host_and_port()[1]
        requests.post(f"http://127.0.0.1:{port}/moto-api/reset", timeout=wait.PATIENCE)  # what another one of this process has left
        iam = client(f"http://127.0.0.1:{port}", "iam", "any", "any")
        iam.create_user(UserName="tester")
        key = iam.create_access_key(UserName="tester")["AccessKey"]
        iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=json.dumps(ALL))
        settings.INITIAL_NO_AUTH_ACTION_COUNT = ActionAuthenticatorMixin.request_count = 0
        yield Storage(port, key)
    finally:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        server.stop()


class Proxy(other.Handler):
    """Forwards requests. server.fault(method, path, number) is None, or the outcome of one:
    an int (that status, and the storage does not get it; or (status, code, headers)), "lost" (the storage does it, its
    answer is lost), "cut" (half of the answer comes), or a function that changes (headers, body) of the answer."""

    def handle_all(self):
        body = self.body()
        with self.server.lock:
            self.server.requests.append((self.command, self.path, dict(self.headers)))
            fault = self.server.fault(self.command, self.path, len(self.server.requests))
        if isinstance(fault, int):
            fault = (fault, "SlowDown", [])
        if isinstance(fault, tuple):
            status, code, headers = fault
            self.tell(status, headers, f"<Error><Code>{code}</Code><Message>Reduce your request rate</Message></Error>".encode())
            return
        conn = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=wait.PATIENCE)
        conn.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            conn.putheader(name, value)
        conn.endheaders(body)
        answer = conn.getresponse()
        headers = [h for h in answer.getheaders() if h[0].lower() not in ("connection", "transfer-encoding")]
        content = answer.read()
        conn.close()
        if fault == "lost":
            self.close_connection = True
            return
        if callable(fault):
            headers, content = fault(headers, content)
        self.tell(answer.status, headers, content, cut=fault == "cut")

    def tell(self, status, headers, body, cut=False):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if cut:
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(body[:len(body) // 2] if cut else body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_all


@contextlib.contextmanager
def faulty(storage, fault):
    """The proxy: .endpoint, .requests, .fault."""
    with other.serving(Proxy) as server:
        server.requests, server.fault, server.behind = [], fault, storage.port
        server.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        yield server
