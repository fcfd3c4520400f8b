"""Images by URL are refused by default. Only listed hosts are read, only at checked addresses, within limits of bytes
and seconds."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.serve.harness import Live, serving
from tests.vision.folders import picture, png, smolvlm
from tests.vision.served.test_input import OPTIONS, chat, part, text, url_of
from twostroke.assembly.settings.option_values import parse_image_hosts
from twostroke.images.remote import fetch as fetching
from twostroke.images.remote.allowed import AllowedHosts, is_public, place_of
from twostroke.images.remote.fetch import ImageFetcher
from twostroke.server.build import build_server
from twostroke.types.errors import InvalidRequest

FILE = png(picture(50, 20))
Answers = dict[str, Callable[[BaseHTTPRequestHandler], None]]


class Site:
    """A web server of the test. heads: the headers of every request that came."""

    def __init__(self, answers: Answers) -> None:
        heads: list[tuple[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                heads.append((self.path, self.headers))
                answers[self.path.partition("?")[0]](self)

            def log_message(self, *_: Any) -> None:
                pass

        self.heads = heads
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def sent(data: bytes, length: int | None = None, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(data) if length is None else length))
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True

    return answer


def moved(to: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def status(code: int) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: handler.send_error(code)


def without_length(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(FILE)
    handler.close_connection = True


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Bytes for as long as somebody reads them."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"x" * 65536)
    except OSError:
        handler.close_connection = True


over, released = threading.Event(), threading.Event()


def silent_until(end: threading.Event) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"x")
        handler.wfile.flush()
        end.wait()
        handler.close_connection = True

    return answer


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site(
        {
            "/a.png": sent(FILE, Content_Type="text/html", Set_Cookie="a=b"),
            "/short": sent(FILE[:50], len(FILE)),
            "/long": sent(b"x" * 30_000),
            "/said": sent(b"", 1 << 40),
            "/open": without_length,
            "/endless": endless,
            "/silent": silent_until(over),
            "/held": silent_until(released),
            "/gone": status(404),
            "/once": moved("/a.png"),
            "/round": moved("/round"),
            "/private": moved("http://inside.test/secret"),
            "/unlisted": moved("http://other.test/a.png"),
            "/file": moved("file:///etc/passwd"),
            "/users": moved("http://me@site.test/a.png"),
        }
    )
    yield made
    over.set()
    made.close()


class Network:
    """The names of the test, and the addresses of connections. Every address leads to the site."""

    def __init__(self, site: Site, names: dict[str, Sequence[str]]) -> None:
        self.site, self.names = site, names
        self.asked: list[str] = []
        self.connected: list[tuple[str, int]] = []

    def resolve(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.names:
            raise socket.gaierror("unknown")
        return self.names[host]

    def connect(self, address: tuple[str, int], seconds: float) -> socket.socket:
        self.connected.append(address)
        if address[0] == "8.8.4.4":
            raise ConnectionRefusedError
        return socket.create_connection(("127.0.0.1", self.site.port), seconds)

    def fetcher(self, *hosts: str, most_bytes: int = 20_000, wall_s: float = 30.0, **more: Any) -> ImageFetcher:
        listed = AllowedHosts.of(each for text in hosts for each in parse_image_hosts(text))
        return ImageFetcher(listed, most_bytes, wall_s, resolve=self.resolve, connect=self.connect, **more)


NAMES: dict[str, Sequence[str]] = {
    "site.test": ["8.8.8.8"],
    "two.test": ["8.8.4.4", "8.8.8.8"],
    "mixed.test": ["8.8.8.8", "10.0.0.7"],
    "inside.test": ["10.0.0.7"],
    "other.test": ["8.8.8.8"],
    "none.test": [],
}


@pytest.fixture
def network(site: Site) -> Network:
    site.heads.clear()
    return Network(site, NAMES)


def refused(fetcher: ImageFetcher, url: str) -> str:
    with pytest.raises(InvalidRequest) as found:
        fetcher.fetch(url)
    return str(found.value)


def test_a_file_is_fetched_from_the_address_that_was_judged(site: Site, network: Network) -> None:
    assert network.fetcher("http://site.test").fetch("http://SITE.test/a.png?b=c#d") == FILE
    assert network.asked == ["site.test"] and network.connected == [("8.8.8.8", 80)]  # resolved once
    path, head = site.heads[0]
    assert path == "/a.png?b=c" and head["Host"] == "site.test" and head["Connection"] == "close"
    assert not {"Cookie", "Authorization", "Referer"} & set(head)


def test_the_name_is_what_the_certificate_is_asked_for(network: Network) -> None:
    names = []

    class Tls:
        def wrap_socket(self, plain: socket.socket, server_hostname: str) -> socket.socket:
            names.append(server_hostname)
            return plain

    tls: Any = Tls()
    assert network.fetcher("site.test", tls=tls).fetch("https://site.test/a.png") == FILE
    assert names == ["site.test"] and network.connected == [("8.8.8.8", 443)]
    assert network.site.heads[-1][1]["Host"] == "site.test"


def test_a_host_that_does_not_answer_at_one_address_is_asked_at_the_next(network: Network) -> None:
    assert network.fetcher("http://two.test").fetch("http://two.test/open") == FILE
    assert network.connected == [("8.8.4.4", 80), ("8.8.8.8", 80)]


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        ((), "http://site.test/a.png"),
        (("site.test",), "http://site.test/a.png"),  # https alone
        (("http://site.test",), "https://site.test/a.png"),
        (("http://site.test",), "http://site.test:8080/a.png"),
        (("http://site.test",), "http://sub.site.test/a.png"),
        (("http://site.test",), "http://site.test.evil.test/a.png"),
        (("http://site.test",), "http://site.test@evil.test/a.png"),
        (("http://site.test",), "http://evil.test\\@site.test/a.png"),
        (("http://site.test",), "http://site.test/a b.png"),
        (("http://site.test",), "http://site.test/\r\nX: y"),
        (("http://site.test",), "http://site.test:99999/a.png"),
        (("http://site.test",), "http://"),
        (("http://site.test",), "http://[::1/a.png"),
        (("http://site.test",), "http://site.test/" + "a" * 3000),
    ],
)
def test_what_is_not_listed_is_neither_resolved_nor_connected(network: Network, hosts: Any, url: str) -> None:
    words = refused(network.fetcher(*hosts), url)
    assert "--image-urls" in words or "cannot be read" in words
    assert not network.asked and not network.connected


@pytest.mark.parametrize("url", ["http://inside.test/", "http://mixed.test/", "http://none.test/", "http://no.test/"])
def test_a_name_with_a_private_address_is_not_connected_to(network: Network, url: str) -> None:
    assert url.split("/")[2] in refused(network.fetcher("http://*"), url)
    assert not network.connected


def test_a_private_address_that_is_listed_by_its_digits_is_connected_to(network: Network) -> None:
    assert network.fetcher("http://inside.test,http://10.0.0.7").fetch("http://inside.test/a.png") == FILE
    assert network.connected == [("10.0.0.7", 80)]


@pytest.mark.parametrize("path", ["/private", "/unlisted", "/file", "/users", "/round"])
def test_redirects_are_judged_like_urls(site: Site, network: Network, path: str) -> None:
    hosts = ("http://site.test", "http://inside.test")
    words = refused(network.fetcher(*hosts), f"http://site.test{path}")
    assert words
    assert {address for address, _ in network.connected} == {"8.8.8.8"}
    assert [each for each, _ in site.heads] == [path] * (4 if path == "/round" else 1)


def test_a_redirect_within_the_rules_is_followed(network: Network) -> None:
    assert network.fetcher("http://site.test").fetch("http://site.test/once") == FILE
    assert network.asked == ["site.test"] * 2


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/long", "20,000 bytes"),
        ("/said", "20,000 bytes"),
        ("/endless", "20,000 bytes"),
        ("/short", "before its end"),
        ("/gone", "404"),
    ],
)
def test_sizes_and_faults_of_the_other_side(network: Network, path: str, words: str) -> None:
    assert words in refused(network.fetcher("http://site.test"), f"http://site.test{path}")


def test_a_host_that_stops_sending_is_given_up(network: Network) -> None:
    assert "in time" in refused(network.fetcher("http://site.test", wall_s=0.2), "http://site.test/silent")


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.1.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
        *("::1", "::", "fe80::1", "fec0::1", "fc00::1", "fd12::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:8.8.8.8"),
        *("::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:1::", "2001:db8::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


def test_addresses_that_are_public() -> None:
    assert all(is_public(ip_address(each)) for each in ("8.8.8.8", "1.1.1.1", "2606:4700::1111"))
    assert place_of("https://[2606:4700::1111]:8443/a").written_host == "[2606:4700::1111]:8443"


def test_hosts_of_the_option() -> None:
    assert parse_image_hosts("A.example.org, http://b.test:81,[::1]:9,*") == (
        *("https://a.example.org:443", "http://b.test:81", "https://[::1]:9", "https://*:443"),
    )
    for wrong in ("", "a,,b", "ftp://a", "a/b", "a:0", "a:70000", "a b", "me@a"):
        with pytest.raises(ValueError):
            parse_image_hosts(wrong)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[Live]:
    """A server that may read from the site by the digits of its address."""
    folder: Path = tmp_path_factory.mktemp("seeing")
    smolvlm(folder)
    options = {**OPTIONS, "image_urls": f"http://127.0.0.1:{site.port}"}
    with build_server(str(folder), options) as built, serving(built.parts) as made:
        yield made


def test_every_api_takes_the_url_of_a_listed_host(live: Live, site: Site) -> None:
    url = f"http://127.0.0.1:{site.port}/a.png"
    wanted = chat(live, [part(url_of(FILE)), text("What?")]).json["choices"][0]["message"]["content"]
    assert chat(live, [part(url), text("What?")]).json["choices"][0]["message"]["content"] == wanted
    asked = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What?"}]
    body = {"input": [{"role": "user", "content": asked}], "max_output_tokens": 16, "temperature": 0}
    assert live.post("/v1/responses", body).status == 200
    blocks = [{"type": "image", "source": {"type": "url", "url": url}}, text("What?")]
    body = {"messages": [{"role": "user", "content": blocks}], "max_tokens": 4, "temperature": 0}
    assert live.post("/v1/messages", body).json["content"][0]["text"] == wanted
    counted = live.post("/v1/messages/count_tokens", {"messages": body["messages"]})
    assert counted.status == 200


def test_a_fetch_that_fails_is_told_by_its_part(live: Live, site: Site) -> None:
    here = f"http://127.0.0.1:{site.port}"
    found = chat(live, [part(f"{here}/a.png"), text("x"), part(f"{here}/gone"), part(f"{here}/short")])
    assert found.status == 400
    assert found.json["error"]["param"] == "messages[0].content[2]" and "404" in found.json["error"]["message"]
    elsewhere = chat(live, [part("https://example.com/x.png")])
    assert elsewhere.status == 400 and "--image-urls does not name it" in elsewhere.json["error"]["message"]


def test_short_questions_are_read_while_images_are_waited_for(live: Live, site: Site) -> None:
    """There are more slow fetches than threads of a lane, and none of them holds one of these threads."""
    arrived = len(site.heads)
    slow = f"http://127.0.0.1:{site.port}/held"
    results: list[Any] = []
    asking = [threading.Thread(target=lambda: results.append(chat(live, [part(slow)]))) for _ in range(6)]
    for thread in asking:
        thread.start()
    while len(site.heads) - arrived < 2:  # two of one host at a time
        threading.Event().wait(0.01)
    assert chat(live, "x").status == 200 and not results
    assert len(site.heads) - arrived == 2
    released.set()
    for thread in asking:
        thread.join()
    assert [each.status for each in results] == [400] * 6


def test_it_is_closed_by_default() -> None:
    assert fetching.MOST_REDIRECTS == 3
    with pytest.raises(InvalidRequest, match="--image-urls HOST"):
        AllowedHosts().place("https://example.org/a.png")
