//! What kind of content a file has.

/// The media type by the file's name, or else by its first bytes, which are at most 512.
pub(super) fn media_type(name: &str, start: &[u8]) -> &'static str {
    by_name(name).unwrap_or_else(|| by_content(start))
}

fn by_name(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "css" => "text/css; charset=utf-8",
        "gif" => "image/gif",
        "htm" | "html" => "text/html; charset=utf-8",
        "jpeg" | "jpg" => "image/jpeg",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        "webp" => "image/webp",
        "xml" => "text/xml; charset=utf-8",
        _ => return None,
    })
}

/// What there is in logs: text, compressed or binary. Text is never taken for a web page: a browser would run its scripts.
fn by_content(start: &[u8]) -> &'static str {
    let is_binary = |&byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match start {
        [0x1f, 0x8b, 0x08, ..] => "application/x-gzip",
        [b'P', b'K', 3, 4, ..] => "application/zip",
        [0xff, 0xfe, ..] => "text/plain; charset=utf-16le",
        [0xfe, 0xff, ..] => "text/plain; charset=utf-16be",
        _ if start.iter().any(is_binary) => "application/octet-stream",
        _ => "text/plain; charset=utf-8",
    }
}
