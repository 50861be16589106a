"""Certificates for tests: an authority of its own, and what it signs, by openssl."""
import subprocess

from lib import wait


def openssl(*args, text=""):
    return subprocess.run(["openssl", *map(str, args)], input=text, capture_output=True, text=True, timeout=wait.PATIENCE)


class Authority:
    """An authority of its own in a folder, and what it signs."""

    def __init__(self, folder, name="authority"):
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.cert, self.key = folder / f"{name}.crt", folder / f"{name}.key"
        done = openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                       "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.cert)
        assert done.returncode == 0, done.stderr

    def sign(self, name, days=30, subject="DNS:localhost,IP:127.0.0.1"):
        """(certificate, key); days 0: expired."""
        cert, key, request, extra = (self.folder / f"{name}.{e}" for e in ("crt", "key", "csr", "ext"))
        extra.write_text(f"subjectAltName={subject}\n")
        done = openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                       "-keyout", key, "-out", request)
        assert done.returncode == 0, done.stderr
        done = openssl("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial",
                       "-days", days, "-extfile", extra, "-out", cert)
        assert done.returncode == 0, done.stderr
        if days == 0:
            wait.until(lambda: openssl("x509", "-in", cert, "-noout", "-checkend", "0").returncode == 1, "the certificate to expire")
        return cert, key
