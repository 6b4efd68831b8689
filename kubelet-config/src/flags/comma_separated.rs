//! Lists: one record of a CSV file, as Go's `encoding/csv` reads it.

/// The fields of the first record. An empty text has none.
pub(super) fn parse(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let text = text.replace("\r\n", "\n");
    let mut rest = text.trim_start_matches('\n');
    if rest.is_empty() {
        return Err("there is no value in it".into());
    }
    let mut fields = Vec::new();
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => plain_field(rest)?,
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(fields),
        }
    }
}

fn plain_field(text: &str) -> Result<(String, &str), String> {
    let (field, after) = text.split_at(text.find([',', '\n']).unwrap_or(text.len()));
    if field.contains('"') {
        return Err(format!("bare \" in {field:?}"));
    }
    Ok((field.to_owned(), after))
}

/// What follows the opening quote. A doubled quote stands for one.
fn quoted_field(text: &str) -> Result<(String, &str), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest
            .split_once('"')
            .ok_or_else(|| format!("no closing \" after {rest:?}"))?;
        field.push_str(part);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None if after.is_empty() || after.starts_with([',', '\n']) => return Ok((field, after)),
            None => return Err(format!("extraneous \" before {after:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let cases: [(&str, Option<&[&str]>); 14] = [
            ("", Some(&[])),
            ("a", Some(&["a"])),
            ("a,b", Some(&["a", "b"])),
            ("a, b ", Some(&["a", " b "])),
            (",", Some(&["", ""])),
            ("a,", Some(&["a", ""])),
            ("\"a,b\",c", Some(&["a,b", "c"])),
            ("\"a\"\"b\"", Some(&["a\"b"])),
            ("\"a\nb\"\nc", Some(&["a\nb"])),
            ("\r\na\r\nb", Some(&["a"])),
            ("\n", None),
            ("a\"b", None),
            ("\"a", None),
            ("\"a\"b", None),
        ];
        for (text, expected) in cases {
            let fields = parse(text).ok();
            let expected = expected.map(|fields| fields.iter().map(|&field| field.to_owned()).collect());
            assert_eq!(fields, expected, "{text:?}");
        }
    }
}
