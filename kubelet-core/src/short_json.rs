//! JSON of statuses in fewer bytes: what stands in all of them is kept as one byte each.

/// What statuses consist of, in the words of their JSON. Each is kept as one byte, its place here: no JSON has bytes that small in
/// it, but escaped. Of two that begin alike the longer comes first.
///
/// All begin with a sign, so that nobody looks for them within words and ids.
const PHRASES: [&[u8]; 32] = [
    b",\"status\":\"True\",\"type\":\"",
    b"\",\"status\":\"True\",\"type\":\"",
    b"\",\"status\":\"False\",\"type\":\"",
    b"\",\"observedGeneration\":",
    b"\",\"message\":\"",
    b"\",\"reason\":\"",
    b"\"},{\"lastTransitionTime\":\"",
    b"\"conditions\":[{\"lastTransitionTime\":\"",
    b"\"containerStatuses\":[{",
    b"\"initContainerStatuses\":[{",
    b"\"allocatedResources\":{",
    b"\"containerID\":\"",
    b"\",\"image\":\"",
    b"\",\"imageID\":\"",
    b"\",\"lastState\":{},\"name\":\"",
    b"\",\"lastState\":{\"terminated\":{",
    b"\",\"ready\":true,",
    b"\"resources\":{",
    b"\"restartCount\":",
    b",\"started\":true,\"state\":{\"running\":{\"startedAt\":\"",
    b"\"terminated\":{",
    b"\"exitCode\":",
    b"\"finishedAt\":\"",
    b"\"startedAt\":\"",
    b"\"volumeMounts\":[{\"mountPath\":\"",
    b"/var/run/secrets/kubernetes.io/serviceaccount\",\"name\":\"kube-api-access-",
    b"\",\"readOnly\":true,\"recursiveReadOnly\":\"Disabled\"}",
    b"\"limits\":{\"cpu\":\"",
    b"\"requests\":{\"cpu\":\"",
    b"\",\"memory\":\"",
    b"\"phase\":\"Running\",\"podIP\":\"",
    b"\":[{\"ip\":\"",
];

/// The same in fewer bytes; `None` where it could not be told from what [`lengthen`] makes of it.
pub(crate) fn shorten(json: &[u8]) -> Option<Vec<u8>> {
    if json.iter().any(|byte| usize::from(*byte) < PHRASES.len()) {
        return None;
    }
    let (mut short, mut rest) = (Vec::with_capacity(json.len() / 2), json);
    while let Some((first, after)) = rest.split_first() {
        let after_phrase = |phrase: &[u8]| match phrase.first() == Some(first) {
            true => rest.strip_prefix(phrase),
            false => None,
        };
        let mut phrases = (0..).zip(PHRASES);
        let found = match first.is_ascii_alphanumeric() {
            true => None,
            false => phrases.find_map(|(place, phrase)| Some((place, after_phrase(phrase)?))),
        };
        let (byte, left) = found.unwrap_or((*first, after));
        short.push(byte);
        rest = left;
    }
    Some(short)
}

/// The JSON that was shortened.
pub(crate) fn lengthen(short: &[u8]) -> Vec<u8> {
    let mut json = Vec::with_capacity(short.len() * 3);
    for byte in short {
        match PHRASES.get(usize::from(*byte)) {
            Some(phrase) => json.extend_from_slice(phrase),
            None => json.push(*byte),
        }
    }
    json
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_phrase_is_hidden_by_one_before_it_or_never_looked_for() {
        for (place, phrase) in PHRASES.iter().enumerate() {
            assert_eq!(shorten(phrase).unwrap(), [place as u8]);
            assert_eq!(lengthen(&[place as u8]), *phrase);
        }
    }

    #[test]
    fn what_could_not_be_told_apart_is_not_shortened() {
        assert_eq!(shorten(b"\"\x07\""), None);
    }

    proptest! {
        #[test]
        fn what_was_shortened_is_had_back(
            pieces in vec(prop_oneof![(0..PHRASES.len()).prop_map(|at| PHRASES[at].to_vec()), "\\PC{0,4}".prop_map(String::into_bytes)], 0..20)
        ) {
            let json = pieces.concat();
            let short = shorten(&json).unwrap();
            prop_assert!(short.len() <= json.len());
            prop_assert_eq!(lengthen(&short), json);
        }
    }
}
