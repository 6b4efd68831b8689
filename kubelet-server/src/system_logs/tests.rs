use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::Body;
use flate2::read::GzDecoder;
use futures::StreamExt;
use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tempfile::TempDir;

use super::{SystemLogs, pattern};

/// Of a folder that the test fills.
struct Logs {
    folder: TempDir,
    logs: SystemLogs,
}

impl Logs {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let logs = SystemLogs::new(folder.path());
        Self { folder, logs }
    }

    fn with_journal() -> Self {
        let mut new = Self::new();
        let command = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journalctl");
        new.logs = new.logs.journal(true).journal_command(command);
        new
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> &Self {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), contents).unwrap();
        self
    }

    /// A folder, or a file, last modified at that many seconds of Unix time.
    fn modify(&self, name: &str, seconds: u64) -> &Self {
        let file = fs::File::open(self.path(name)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
            .unwrap();
        self
    }

    async fn get(&self, path: &str) -> Response<Body> {
        self.get_with(path, &[]).await
    }

    /// The path may have a query.
    async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Response<Body> {
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(path, query)| (path, Some(query)));
        let uri = query.map_or_else(|| "/logs/".to_owned(), |query| format!("/logs/?{query}"));
        let mut request = Request::get(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (request, ()) = request.body(()).unwrap().into_parts();
        self.logs.serve(path, &request).await
    }

    async fn text(&self, path: &str) -> (u16, String) {
        text(self.get(path).await).await
    }
}

async fn text(response: Response<Body>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn header_of(response: &Response<Body>, name: header::HeaderName) -> &str {
    response
        .headers()
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn folder_is_a_page_of_links() {
    let logs = Logs::new();
    logs.write("dpkg.log", "")
        .write("apt/history.log", "")
        .write("a b&<c>:\"'.log", "");
    std::os::unix::fs::symlink("apt", logs.path("link")).unwrap();
    logs.modify(".", 1_795_410_211);
    for path in ["", "/", "apt/../"] {
        let response = logs.get(path).await;
        assert_eq!(
            header_of(&response, header::CONTENT_TYPE),
            "text/html; charset=utf-8"
        );
        assert_eq!(
            header_of(&response, header::LAST_MODIFIED),
            "Mon, 23 Nov 2026 05:03:31 GMT"
        );
        let page = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n\
            <a href=\"./a%20b&%3Cc%3E:%22%27.log\">a b&amp;&lt;c&gt;:&#34;&#39;.log</a>\n\
            <a href=\"apt/\">apt/</a>\n<a href=\"dpkg.log\">dpkg.log</a>\n<a href=\"link\">link</a>\n</pre>\n";
        assert_eq!(text(response).await, (200, page.to_owned()), "{path}");
    }
}

#[tokio::test]
async fn paths_lead_where_they_lead_in_the_kubelet() {
    let logs = Logs::new();
    logs.write("dpkg.log", "lines\n")
        .write("apt/history.log", "")
        .write("web/index.html", "<p>");
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("0.log"), "container\n").unwrap();
    std::os::unix::fs::symlink(outside.path().join("0.log"), logs.path("c.log")).unwrap();
    std::os::unix::fs::symlink(logs.path("loop"), logs.path("loop")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        logs.path("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let not_found = (404, "404 page not found\n");
    for (path, (status, answer)) in [
        ("dpkg.log", (200, "lines\n")),
        ("/dpkg.log", (200, "lines\n")),
        ("./apt//../dpkg.log", (200, "lines\n")),
        ("web/", (200, "<p>")),
        // Symbolic links are followed, as those of /var/log/containers must be.
        ("c.log", (200, "container\n")),
        ("nope", not_found),
        ("dpkg.log/more", not_found),
        ("../etc/passwd", not_found),
        ("../../../../../../etc/passwd", not_found),
        ("apt/../../etc/passwd", not_found),
        ("..\\..\\etc\\passwd", not_found),
        ("%2e%2e/etc/passwd", not_found),
        ("a\0b", (500, "500 Internal Server Error\n")),
        ("loop", (500, "500 Internal Server Error\n")),
        ("pipe", (500, "500 Internal Server Error\n")),
        // Without the journal, a query means nothing.
        ("dpkg.log?query=kubelet&tailLines=x", (200, "lines\n")),
    ] {
        assert_eq!(logs.text(path).await, (status, answer.to_owned()), "{path}");
    }
    let name = "n".repeat(300);
    assert_eq!(logs.text(&name).await.0, 500);
    for (path, location) in [
        ("apt", "apt/"),
        ("apt?a=b", "apt/?a=b"),
        ("dpkg.log/", "../dpkg.log"),
        ("web/index.html", "./"),
        ("index.html", "./"),
    ] {
        let response = logs.get(path).await;
        assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY, "{path}");
        assert_eq!(header_of(&response, header::LOCATION), location, "{path}");
    }
    let response = logs.get("nope").await;
    assert_eq!(header_of(&response, header::X_CONTENT_TYPE_OPTIONS), "nosniff");
    assert_eq!(
        header_of(&response, header::CONTENT_TYPE),
        "text/plain; charset=utf-8"
    );
}

#[tokio::test]
async fn conditions_and_ranges_are_heeded() {
    let logs = Logs::new();
    logs.write("a.log", "0123456789").write("empty", "");
    logs.modify("a.log", 1_000_000_000).modify(".", 1_000_000_000);
    let (same, before) = ("Sun, 09 Sep 2001 01:46:40 GMT", "Sun, 09 Sep 2001 01:46:39 GMT");
    for (path, headers, status, body, range) in [
        ("a.log", &[][..], 200, "0123456789", ""),
        ("a.log", &[("if-modified-since", same)], 304, "", ""),
        ("a.log", &[("if-modified-since", before)], 200, "0123456789", ""),
        (
            "a.log",
            &[("if-modified-since", "yesterday")],
            200,
            "0123456789",
            "",
        ),
        ("", &[("if-modified-since", same)], 304, "", ""),
        ("a.log", &[("if-unmodified-since", before)], 412, "", ""),
        ("a.log", &[("if-match", "\"x\"")], 412, "", ""),
        ("a.log", &[("if-none-match", "*")], 304, "", ""),
        ("a.log", &[("range", "bytes=2-4")], 206, "234", "bytes 2-4/10"),
        ("a.log", &[("range", "bytes=7-")], 206, "789", "bytes 7-9/10"),
        ("a.log", &[("range", "bytes=-2")], 206, "89", "bytes 8-9/10"),
        (
            "a.log",
            &[("range", "bytes=-99")],
            206,
            "0123456789",
            "bytes 0-9/10",
        ),
        (
            "a.log",
            &[("range", "bytes=5-99999999999999999999")],
            416,
            "invalid range\n",
            "bytes */10",
        ),
        (
            "a.log",
            &[("range", "bytes=5-18446744073709551615")],
            206,
            "56789",
            "bytes 5-9/10",
        ),
        (
            "a.log",
            &[("range", "bytes=10-")],
            416,
            "invalid range: failed to overlap\n",
            "bytes */10",
        ),
        (
            "a.log",
            &[("range", "bytes=4-2")],
            416,
            "invalid range\n",
            "bytes */10",
        ),
        (
            "a.log",
            &[("range", "lines=1-2")],
            416,
            "invalid range\n",
            "bytes */10",
        ),
        ("a.log", &[("range", "bytes=0-1,3-4")], 200, "0123456789", ""),
        (
            "a.log",
            &[("range", "bytes=0-1"), ("if-range", same)],
            206,
            "01",
            "bytes 0-1/10",
        ),
        (
            "a.log",
            &[("range", "bytes=0-1"), ("if-range", before)],
            200,
            "0123456789",
            "",
        ),
        ("empty", &[("range", "bytes=0-1")], 200, "", ""),
    ] {
        let response = logs.get_with(path, headers).await;
        assert_eq!(
            header_of(&response, header::CONTENT_RANGE),
            range,
            "{path} {headers:?}"
        );
        assert_eq!(
            text(response).await,
            (status, body.to_owned()),
            "{path} {headers:?}"
        );
    }
}

#[tokio::test]
async fn content_is_of_a_type() {
    let logs = Logs::new();
    for (name, contents, media_type) in [
        ("a.log", &b"text\n"[..], "text/plain; charset=utf-8"),
        ("README", b"<html><script>", "text/plain; charset=utf-8"),
        ("wtmp", b"\x07\0\0\0", "application/octet-stream"),
        ("a.log.1.gz", b"\x1f\x8b\x08\0", "application/x-gzip"),
        ("a.html", b"<p>", "text/html; charset=utf-8"),
        ("empty", b"", "text/plain; charset=utf-8"),
    ] {
        logs.write(name, contents);
        let response = logs.get(name).await;
        assert_eq!(header_of(&response, header::CONTENT_TYPE), media_type, "{name}");
        assert_eq!(
            header_of(&response, header::CONTENT_LENGTH),
            contents.len().to_string()
        );
    }
}

#[tokio::test]
async fn a_file_that_grows_is_served_as_long_as_it_was() {
    let logs = Logs::new();
    logs.write("a.log", "before\n");
    let response = logs.get("a.log").await;
    logs.write("a.log", "before\nafter\n");
    assert_eq!(text(response).await, (200, "before\n".to_owned()));
}

#[tokio::test]
async fn queries_are_refused_as_the_kubelet_refuses_them() {
    let logs = Logs::with_journal();
    logs.write("test.log", "");
    for (query, status, message) in [
        (
            "query=",
            400,
            "query: Invalid value: [\"\"]: query cannot be empty",
        ),
        (
            "query=%20&query=",
            400,
            "query: Invalid value: [\" \",\"\"]: query cannot be empty",
        ),
        (
            "query=a&sinceTime=2026",
            400,
            "sinceTime: Invalid value: \"2026\": invalid time format",
        ),
        (
            "query=a&sinceTime=2026-01-01T00:00:00&untilTime=2026-01-01%2000:00:00Z",
            400,
            "[sinceTime: Invalid value: \"2026-01-01T00:00:00\": invalid time format, \
             untilTime: Invalid value: \"2026-01-01 00:00:00Z\": invalid time format]",
        ),
        (
            "query=a&boot=x",
            400,
            "boot: Invalid value: \"x\": strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            "query=a&tailLines=99999999999999999999",
            400,
            "tailLines: Invalid value: \"99999999999999999999\": strconv.Atoi: parsing \
             \"99999999999999999999\": value out of range",
        ),
        (
            "tailLines=5",
            406,
            "query: Required value: cannot be empty with options",
        ),
        (
            "query=a&query=/b",
            406,
            "query: Invalid value: \"[/b], [a]\": cannot specify a file and service",
        ),
        (
            "query=/a&query=/b",
            406,
            "query: Invalid value: [\"/a\",\"/b\"]: cannot specify more than one file",
        ),
        (
            "query=/test.log&tailLines=1",
            406,
            "query: Invalid value: [\"/test.log\"]: cannot specify file with options",
        ),
        (
            "query=/nope.log",
            406,
            "query: Invalid value: [\"/nope.log\"]: statat /nope.log: no such file or directory",
        ),
        (
            "query=../etc/passwd",
            406,
            "query: Invalid value: [\"../etc/passwd\"]: statat ../etc/passwd: path escapes from parent",
        ),
        (
            "query=foo%5C",
            406,
            "query: Invalid value: [\"foo\\\\\"]: statat foo\\: no such file or directory",
        ),
        (
            "query=a%0A",
            406,
            "query: Invalid value: \"a\\n\": input contains unsupported characters",
        ),
        (
            "query=a%3Brm",
            406,
            "query: Invalid value: \"a;rm\": input contains unsupported characters",
        ),
        (
            "query=a&query=b&query=c&query=d&query=e",
            406,
            "query: Too many: 5: must have at most 4 items",
        ),
        (
            "query=a&boot=1",
            406,
            "boot: Invalid value: 1: must be less than 1",
        ),
        (
            "query=a&tailLines=-1",
            406,
            "tailLines: Invalid value: -1: must be between 0 and 100000, inclusive",
        ),
        (
            "query=a&tailLines=100001",
            406,
            "tailLines: Invalid value: 100001: must be between 0 and 100000, inclusive",
        ),
        (
            "query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00.500%2B00:00",
            406,
            "untilTime: Invalid value: \"2026-01-01T00:00:00.5Z\": must be after `sinceTime`",
        ),
        (
            "query=a&pattern=(",
            406,
            "pattern: Invalid value: \"(\": error parsing regexp: missing closing ): `(`",
        ),
    ] {
        let answer = logs.text(&format!("?{query}")).await;
        assert_eq!(answer, (status, format!("{message}\n")), "{query}");
    }
    let long = "a".repeat(257);
    let message = format!("query: Invalid value: \"{long}\": length must be less than 256\n");
    assert_eq!(logs.text(&format!("?query={long}")).await, (406, message));
    let message = "path not allowed in query mode\n".to_owned();
    assert_eq!(logs.text("test.log?query=kubelet").await, (406, message));
}

#[tokio::test]
async fn a_query_for_a_file_gets_it() {
    let logs = Logs::with_journal();
    logs.write("apt/history.log", "installed\n");
    for path in [
        "?query=/apt/history.log",
        "?query=apt/history.log",
        "apt/history.log",
    ] {
        assert_eq!(logs.text(path).await, (200, "installed\n".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn the_journal_is_read() {
    let logs = Logs::with_journal();
    let since = "2026-01-02T03:04:05.5%2B01:00";
    let until = "2026-01-03T03:04:05Z";
    for (query, arguments) in [
        (
            "query=kubelet",
            "--utc --no-pager --output=short-precise --unit=kubelet",
        ),
        (
            &format!("query=kubelet&sinceTime={since}&untilTime={until}&tailLines=7&boot=-1&pattern=a%20b"),
            "--utc --no-pager --output=short-precise --since=2026-01-02_02:04:05_UTC \
             --until=2026-01-03_03:04:05_UTC --pager-end --lines=7 --unit=kubelet --grep=a_b \
             --case-sensitive=false --boot -1",
        ),
    ] {
        let response = logs.get(&format!("?{query}")).await;
        assert_eq!(
            header_of(&response, header::CONTENT_TYPE),
            "text/plain;charset=UTF-8"
        );
        let (status, text) = text(response).await;
        let mut lines: Vec<String> = text.lines().map(|line| line.replace(' ', "_")).collect();
        // The two outputs are not in order.
        lines.retain(|line| line != "said_on_stderr");
        assert_eq!((status, lines.join(" ").as_str()), (200, arguments));
        assert!(text.contains("said on stderr\n"), "{text}");
    }
}

#[tokio::test]
async fn services_without_a_journal_have_files() {
    let logs = Logs::with_journal();
    logs.write("kube-proxy.log", "proxied\n")
        .write("containerd/containerd.log", "contained\n");
    let outside = tempfile::NamedTempFile::new().unwrap();
    std::os::unix::fs::symlink(outside.path(), logs.path("escape.log")).unwrap();
    for (query, answer) in [
        ("query=kube-proxy&query=containerd", "proxied\ncontained\n"),
        ("query=kube-proxy.log", "proxied\n"),
        ("query=nope", "\nlog not found for nope\n"),
        (
            "query=..",
            "\nerror getting log for ..: openat ..: path escapes from parent\n",
        ),
        (
            "query=escape",
            "\nerror getting log for escape: openat escape.log: path escapes from parent\n",
        ),
        (
            "query=kube-proxy&query=nope&tailLines=3",
            "\noptions present and query resolved to log files for [kube-proxy nope]\n\
             try without specifying options\n",
        ),
    ] {
        assert_eq!(
            logs.text(&format!("?{query}")).await,
            (200, answer.to_owned()),
            "{query}"
        );
    }
}

#[tokio::test]
async fn without_journalctl_there_are_files_only() {
    let mut logs = Logs::new();
    logs.logs = logs.logs.journal(true).journal_command("/nonexistent/journalctl");
    logs.write("kubelet.log", "lines\n");
    assert_eq!(logs.text("?query=kubelet").await, (200, "lines\n".to_owned()));
}

#[tokio::test]
async fn lines_are_compressed_on_request() {
    let logs = Logs::with_journal();
    let lines = "a line of many\n".repeat(10_000);
    logs.write("big.log", &lines);
    let response = logs.get_with("?query=big", &[("accept-encoding", "gzip")]).await;
    assert_eq!(header_of(&response, header::CONTENT_ENCODING), "gzip");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let mut text = String::new();
    GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
    assert!(text == lines && body.len() < lines.len() / 10);
}

#[tokio::test]
async fn journalctl_ends_with_its_client() {
    let logs = Logs::with_journal();
    let mut body = logs.get("?query=slow").await.into_body().into_data_stream();
    let id = body.next().await.unwrap().unwrap();
    let id = std::str::from_utf8(&id).unwrap().trim().parse().unwrap();
    let process = rustix::process::Pid::from_raw(id).unwrap();
    let process = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    drop(body);
    let ended = tokio::task::spawn_blocking(move || {
        // It becomes readable when the process has ended.
        let mut process = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut process, None)
    });
    assert_eq!(ended.await.unwrap(), Ok(1));
}

#[test]
fn patterns_are_checked() {
    for (pattern, wrong) in [
        ("", ""),
        ("a.*b|c+?|d{2,3}", ""),
        ("[]a]|[^]]|[[:alpha:]\\]]", ""),
        ("(?i)(?P<name>x)(?:y)*", ""),
        ("a{,2}{x}", ""),
        ("^*", ""),
        ("\\(", ""),
        ("é+[ü]", ""),
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("x[a", "missing closing ]: `[a`"),
        ("[]", "missing closing ]: `[]`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a|+", "missing argument to repetition operator: `+`"),
        ("({2})", "missing argument to repetition operator: `{2}`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
    ] {
        let expected = match wrong {
            "" => Ok(()),
            wrong => Err(format!("error parsing regexp: {wrong}")),
        };
        assert_eq!(pattern::check(pattern), expected, "{pattern}");
    }
}

proptest::proptest! {
    #[test]
    fn no_pattern_or_path_is_too_much(text in ".{0,40}") {
        let _ = pattern::check(&text);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let logs = Logs::new();
        let answer = runtime.block_on(logs.get(&text.replace('?', "")));
        proptest::prop_assert!(!answer.status().is_informational());
    }
}
