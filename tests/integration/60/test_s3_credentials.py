"""Credentials for S3 that last for a while: web identities, assumed roles, the services of containers and instances, all of them
here on loopback. What they give is a session of the storage's own, another one each time."""
import contextlib
import datetime
import html
import json
import os
import subprocess
import threading
import urllib.parse

import pytest

from lib import batch, wait
from lib.services import other, s3

pytestmark = batch.pytestmark
WEB_TOKEN = "eyJ-web-identity-token"
CONTAINER_TOKEN = "Bearer container-secret-token"
SESSION = "instance-session-token"
SECRETS = {WEB_TOKEN, "container-secret", SESSION, "base-secret", "Signature="}


@pytest.fixture(scope="module")
def storage():
    with s3.storage() as found:
        found.client.create_bucket(Bucket="data")
        iam = s3.client(found.endpoint, "iam", found.key, found.secret)
        found.role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=json.dumps(s3.ALL))["Role"]["Arn"]
        iam.put_role_policy(RoleName="reader", PolicyName="all", PolicyDocument=json.dumps(s3.ALL))
        found.sts = s3.client(found.endpoint, "sts", found.key, found.secret)
        found.put("data", "in/a.jsonl", "".join(json.dumps({"id": i, "x": [1.0] * batch.WIDTH}) + "\n" for i in range(300)).encode())
        yield found


@pytest.fixture(scope="module")
def host():
    with batch.hosts(batch.Host) as (addresses, _):
        yield addresses[0]


class Giver(other.Handler):
    """STS, the container's service and the instance's in one. server.seen: what each was asked; server.refuse: a status for all."""

    def tell(self, status, text=""):
        self.say(status, text.encode())

    def given(self):
        """A new session each time."""
        with self.server.lock:
            self.server.given += 1
            made = self.server.storage.sts.assume_role(RoleArn=self.server.storage.role, RoleSessionName="session")["Credentials"]
            SECRETS.update((made["SecretAccessKey"], made["SessionToken"]))
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.server.seconds)
        return {"AccessKeyId": made["AccessKeyId"], "SecretAccessKey": made["SecretAccessKey"], "Token": made["SessionToken"], "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def handle_one(self):
        body = self.body().decode()
        seen = {"method": self.command, "path": self.path, "form": dict(urllib.parse.parse_qsl(body)), "headers": dict(self.headers)}
        with self.server.lock:
            self.server.seen.append(seen)
        refused = self.server.refuse(len(self.server.seen))
        if refused:
            # One that repeats what it was shown: nothing of it may come into a log.
            return self.tell(refused, f"<ErrorResponse><Error><Code>AccessDenied</Code><Message>{body} {dict(self.headers)}</Message></Error></ErrorResponse>")
        if self.command == "POST":
            g = self.given()
            action = seen["form"]["Action"]
            return self.tell(200, f"<{action}Response><{action}Result><Credentials><AccessKeyId>{g['AccessKeyId']}</AccessKeyId>"
                                  f"<SecretAccessKey>{html.escape(g['SecretAccessKey'])}</SecretAccessKey><SessionToken>{html.escape(g['Token'])}</SessionToken>"
                                  f"<Expiration>{g['Expiration']}</Expiration></Credentials></{action}Result></{action}Response>")
        if self.path.startswith("/container"):
            ok = self.headers["Authorization"] == CONTAINER_TOKEN
            return self.tell(200 if ok else 401, json.dumps(self.given()) if ok else "")
        if self.command == "PUT":
            ok = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
            return self.tell(200 if ok else 400, SESSION if ok else "")
        if self.headers["X-aws-ec2-metadata-token"] != SESSION:
            return self.tell(401)  # no IMDSv1
        role = self.path.removeprefix("/latest/meta-data/iam/security-credentials/")
        return self.tell(200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", **self.given()}) if role == "my-role" else "my-role\n")

    do_GET = do_POST = do_PUT = handle_one


@contextlib.contextmanager
def giver(storage, seconds=3600, refuse=lambda number: None):
    with other.serving(Giver) as server:
        server.seen, server.given, server.storage, server.seconds, server.refuse = [], 0, storage, seconds, refuse
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield server


def web(g, folder):
    (folder / "token").write_text(WEB_TOKEN + "\n")
    return {"AWS_WEB_IDENTITY_TOKEN_FILE": str(folder / "token"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/web", "AWS_ROLE_SESSION_NAME": "mine"}


def container(g, folder):
    (folder / "token").write_text(CONTAINER_TOKEN + "\n")
    return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": g.url + "/container?x=1", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "token")}


def instance(g, folder):
    return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": g.url}


def profile(g, folder, text):
    (folder / "config").write_text(text)
    return {"AWS_CONFIG_FILE": str(folder / "config"), "AWS_PROFILE": "p"}


def role(g, folder):
    return profile(g, folder, "[profile base]\naws_access_key_id = AKBASE\naws_secret_access_key = base-secret\n[profile p]\n"
                              "role_arn = arn:aws:iam::1:role/r\nsource_profile = base\nexternal_id = ext 1\nduration_seconds = 900\n")


def chained(g, folder):
    return profile(g, folder, "[profile base]\naws_access_key_id = AKBASE\naws_secret_access_key = base-secret\n[profile middle]\n"
                              "role_arn = arn:aws:iam::1:role/m\nsource_profile = base\n[profile p]\nrole_arn = arn:aws:iam::1:role/r\n"
                              "source_profile = middle\n")


def role_of_web(g, folder):
    return profile(g, folder, f"[profile p]\nrole_arn = arn:aws:iam::1:role/w\nweb_identity_token_file = {folder}/token\n") | \
        {"AWS_WEB_IDENTITY_TOKEN_FILE": web(g, folder)["AWS_WEB_IDENTITY_TOKEN_FILE"]}


def role_of_instance(g, folder):
    return instance(g, folder) | profile(g, folder, "[profile p]\nrole_arn = arn:aws:iam::1:role/r\ncredential_source = Ec2InstanceMetadata\n")


def role_of_container(g, folder):
    return container(g, folder) | profile(g, folder, "[profile p]\nrole_arn = arn:aws:iam::1:role/r\ncredential_source = EcsContainer\n")


def run(folder, host, env, endpoint, *args, code=0):
    env = batch.environment() | {"HOME": str(folder), "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": endpoint} | env
    done = subprocess.run([str(batch.BIN), "batch", "run", "-m", "m", "--hosts", host, "-o", str(folder / "out"), "--keep", "id",
                           "-i", "s3://data/in/", *args], capture_output=True, text=True, env=env, timeout=wait.PATIENCE)
    assert done.returncode == code, f"{done.returncode}: {done.stderr[-3000:]}"
    everything = done.stderr + done.stdout + "".join(f.read_text(errors="replace") for f in (folder / "out").rglob("*") if f.is_file())
    for secret in SECRETS:
        assert secret not in everything
    return done.stderr


def ids(folder):
    return sorted(batch.results(folder)["id"].to_pylist())


@pytest.mark.few(3)
@pytest.mark.parametrize("source", [web, container, instance, role, chained, role_of_web, role_of_instance, role_of_container])
def test_sources(storage, host, tmp_path, source):
    with giver(storage) as g:
        run(tmp_path, host, source(g, tmp_path) | {"AWS_ENDPOINT_URL_STS": g.url}, storage.endpoint)
        assert ids(tmp_path) == list(range(300))
        forms = [s["form"] for s in g.seen if s["method"] == "POST"]
        signed = ["authorization" in s["headers"] for s in g.seen if s["method"] == "POST"]
    if source in (web, role_of_web):
        (form,) = forms
        assert form["Action"] == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] == WEB_TOKEN and signed == [False]
        assert form["RoleArn"] == ("arn:aws:iam::1:role/web" if source is web else "arn:aws:iam::1:role/w")
        assert source is not web or form["RoleSessionName"] == "mine"
    elif source is role:
        (form,) = forms
        assert (form["Action"], form["RoleArn"], form["ExternalId"], form["DurationSeconds"]) == ("AssumeRole", "arn:aws:iam::1:role/r", "ext 1", "900")
        assert signed == [True]
    elif source is chained:
        assert [f["RoleArn"][-1] for f in forms] == ["m", "r"] and signed == [True, True]
    else:
        assert len(forms) == (source in (role_of_instance, role_of_container))


def test_signatures_for_sts_are_those_of_others(storage, host, tmp_path):
    """Made once more by botocore, over the same request."""
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    with giver(storage) as g:
        run(tmp_path, host, role(g, tmp_path) | {"AWS_ENDPOINT_URL_STS": g.url}, storage.endpoint)
        (seen,) = [s for s in g.seen if s["method"] == "POST"]
        headers = {k.lower(): v for k, v in seen["headers"].items()}
        body = urllib.parse.urlencode(seen["form"], quote_via=urllib.parse.quote)
        ours = headers["authorization"]
        names = ours.split("SignedHeaders=")[1].split(",")[0].split(";")
        assert names == sorted(names) and "host" in names and "content-type" in names
        request = AWSRequest("POST", g.url + "/", data=body, headers={n: headers[n] for n in names})
        request.context["timestamp"] = headers["x-amz-date"]
        auth = SigV4Auth(Credentials("AKBASE", "base-secret"), "sts", "us-east-1")
        text = auth.string_to_sign(request, auth.canonical_request(request))
        assert ours.endswith("Signature=" + auth.signature(text, request))


def test_expired_credentials_are_replaced(storage, host, tmp_path):
    """The storage reports it, in the middle of a job."""
    with giver(storage) as g, s3.faulty(storage, lambda method, path, number: (400, "ExpiredToken", []) if number > 2 and g.given < 2 else None) as proxy:
        (tmp_path / "token").write_text(WEB_TOKEN)
        for i in range(4):
            storage.put("data", f"in/b{i}.jsonl", (json.dumps({"id": 1000 + i, "x": [1.0] * batch.WIDTH}) + "\n").encode())
        run(tmp_path, host, web(g, tmp_path) | {"AWS_ENDPOINT_URL_STS": g.url}, proxy.endpoint)
        assert g.given >= 2 and ids(tmp_path)[:300] == list(range(300))


def test_credentials_are_renewed_before_they_run_out(storage, tmp_path):
    """They last for two seconds; a host that answers once they were renewed twice."""
    renewed = threading.Event()

    class Waits(batch.Host):
        def answer(self, number, x, key):
            assert renewed.wait(wait.PATIENCE)
            self.good(x, key)

    class Counts(Giver):
        def given(self):
            if self.server.given == 2:
                renewed.set()
            return super().given()

    with batch.hosts(Waits) as (addresses, _), giver(storage, seconds=2) as g:
        g.RequestHandlerClass = Counts
        run(tmp_path, addresses[0], container(g, tmp_path), storage.endpoint)
        assert g.given >= 3


def test_a_renewal_that_fails_is_tried_again(storage, tmp_path):
    """The old ones are used in between."""
    renewed = threading.Event()

    class Waits(batch.Host):
        def answer(self, number, x, key):
            assert renewed.wait(wait.PATIENCE)
            self.good(x, key)

    def refuse(number):
        if number > 2:
            renewed.set()
        return 503 if number == 2 else None
    with batch.hosts(Waits) as (addresses, _), giver(storage, seconds=2, refuse=refuse) as g:
        said = run(tmp_path, addresses[0], container(g, tmp_path), storage.endpoint)
        assert "batch.storage" in said and "HTTP status 503" in said


@pytest.mark.parametrize("source,words", [(web, "AccessDenied, HTTP status 403"), (role, "AccessDenied, HTTP status 403"),
                                          (container, "the container's service answered AccessDenied"), (instance, "(IMDSv2) answered HTTP status 403")])
def test_refusals(storage, host, tmp_path, source, words):
    with giver(storage, refuse=lambda number: 403) as g:
        assert words in run(tmp_path, host, source(g, tmp_path) | {"AWS_ENDPOINT_URL_STS": g.url}, storage.endpoint, code=1)


@pytest.mark.parametrize("env,words", [
    ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere", "AWS_ROLE_ARN": "r"}, "token cannot be read from '/nowhere'"),
    ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.1/x"}, "http:// with an address of this machine"),
    ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:80@192.0.2.1/x"}, "http:// with an address of this machine"),
    ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}, "the instance's service does not answer"),
    ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "127.0.0.1:1"}, "begins with http://"),
    ({"AWS_EC2_METADATA_DISABLED": "true"}, "set AWS_ACCESS_KEY_ID")])
def test_what_cannot_be_asked(storage, host, tmp_path, env, words):
    assert words in run(tmp_path, host, env, storage.endpoint, code=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text,words", [
    ("role_arn = r\nsource_profile = p\n", "has no credentials for that"), ("role_arn = r\nmfa_serial = d\n", "mfa_serial"),
    ("role_arn = r\ncredential_source = EcsContainer\n", "takes those of the container"),
    ("role_arn = r\nsource_profile = q\n[profile q]\nrole_arn = r\nsource_profile = p\n", "assume roles one from another")])
def test_profiles_that_cannot_be(storage, host, tmp_path, text, words):
    assert words in run(tmp_path, host, profile(None, tmp_path, "[profile p]\n" + text), storage.endpoint, code=1)


@pytest.mark.parametrize("source,most,who", [(instance, 1, "the instance's service"), (container, 1, "the container's service"),
                                             (web, 1, "STS"), (role_of_instance, 2, "the instance's service")])
def test_a_service_that_does_not_answer(storage, host, tmp_path, source, most, who):
    """The start ends by itself, and soon: what was waited for in vain is hardly asked again."""
    stuck = os.pipe()
    with giver(storage, refuse=lambda number: os.read(stuck[0], 1) and None) as g:
        said = run(tmp_path, host, source(g, tmp_path) | {"AWS_ENDPOINT_URL_STS": g.url}, storage.endpoint, code=1)
        os.close(stuck[1])
        assert f"no credentials for S3: {who}: no answer from " in said and len(g.seen) <= most


def test_a_start_that_is_stopped(storage, host, tmp_path):
    """It does not wait for credentials."""
    asked, stuck = threading.Event(), os.pipe()

    def refuse(number):
        asked.set()
        os.read(stuck[0], 1)
    with giver(storage, refuse=refuse) as g:
        env = batch.environment() | {"HOME": str(tmp_path), "AWS_ENDPOINT_URL_S3": storage.endpoint, "AWS_ENDPOINT_URL_STS": g.url} | web(g, tmp_path)
        job = subprocess.Popen([str(batch.BIN), "batch", "run", "-m", "m", "--hosts", host, "-o", str(tmp_path / "out"), "-i", "s3://data/in/"],
                               env=env, stderr=subprocess.PIPE, text=True)
        assert asked.wait(wait.PATIENCE)
        job.terminate()
        said = job.communicate(timeout=wait.PATIENCE)[1]
        os.close(stuck[1])
        assert job.returncode == 1 and "no answer" not in said
