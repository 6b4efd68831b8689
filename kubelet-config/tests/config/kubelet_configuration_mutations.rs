//! Configuration files with pieces lost, doubled, swapped and put in: nothing panics, what is accepted strictly is
//! accepted leniently as the same, and what is written is read again as it was. The fuzz target does the same with
//! no end.
use kubelet_config::credential_provider::CredentialProviderConfig;
use kubelet_config::kubelet_configuration::validation::{Host, validate};
use kubelet_config::{FeatureGates, KubeletConfiguration};
use proptest::prelude::*;

const SEEDS: [&str; 5] = [
    include_str!("../../fuzz/seeds/kubelet_configuration/typical.yaml"),
    include_str!("../../fuzz/seeds/kubelet_configuration/sections.yaml"),
    include_str!("../../fuzz/seeds/kubelet_configuration/yaml11.yaml"),
    include_str!("../../fuzz/seeds/kubelet_configuration/typical.json"),
    include_str!("../../fuzz/seeds/kubelet_configuration/providers.yaml"),
];

/// What is put in.
const PIECES: [&str; 36] = [
    "null",
    "~",
    "''",
    "\"",
    "0",
    "-1",
    "1e2",
    "1.5",
    "0x7f",
    "010",
    "1_0",
    "9223372036854775808",
    "yes",
    "[",
    "]",
    "{",
    "}",
    ", ",
    ": ",
    "\n",
    "  ",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "# ",
    "---\n",
    "0s",
    "-1.5h",
    "1Gi",
    "1n",
    "\u{e4}",
    "\u{feff}",
    "\\u00e4",
    "%",
];

#[derive(Clone, Debug)]
enum Change {
    Remove(usize, usize),
    Repeat(usize, usize),
    Insert(usize, usize),
    Line(usize, usize),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = 0..2000_usize;
    let change = prop_oneof![
        (at.clone(), 0..20_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        (at.clone(), 0..20_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        (at.clone(), 0..PIECES.len()).prop_map(|(at, piece)| Change::Insert(at, piece)),
        (at.clone(), at).prop_map(|(from, to)| Change::Line(from, to)),
    ];
    proptest::collection::vec(change, 0..6)
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for change in changes {
        let size = text.len().max(1);
        match *change {
            Change::Remove(at, length) => {
                let at = at % size;
                text.drain(at..(at + length).min(text.len()));
            }
            Change::Repeat(at, length) => {
                let at = at % size;
                let piece = text[at..(at + length).min(text.len())].to_vec();
                text.splice(at..at, piece);
            }
            Change::Insert(at, piece) => {
                let at = at % size;
                text.splice(at..at, PIECES[piece].chars());
            }
            Change::Line(from, to) => {
                let whole: String = text.iter().collect();
                let mut lines: Vec<&str> = whole.split('\n').collect();
                let (from, to) = (from % lines.len(), to % lines.len());
                lines.insert(to, lines[from]);
                text = lines.join("\n").chars().collect();
            }
        }
    }
    text.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_nothing_is_lost(seed in 0..SEEDS.len(), changes in changes()) {
        let text = changed(SEEDS[seed], &changes);
        let gates = FeatureGates::new();
        if let Ok(providers) = CredentialProviderConfig::from_yaml(&text) {
            _ = providers.validate(&gates);
        }
        let strict = KubeletConfiguration::from_yaml(&text);
        let Ok((config, ignored)) = KubeletConfiguration::from_yaml_lenient(&text) else {
            prop_assert!(strict.is_err());
            return Ok(());
        };
        if let Ok(strict) = strict {
            prop_assert_eq!(&strict, &config);
            // A further document is no error.
            prop_assert!(ignored.len() <= 1, "{:?}", ignored);
        }
        _ = validate(&config, &gates, &Host::default());
        read_again(&config)?;
    }
}

fn read_again(config: &KubeletConfiguration) -> Result<(), TestCaseError> {
    let mut written = serde_json::to_value(config).unwrap();
    written["apiVersion"] = "kubelet.config.k8s.io/v1beta1".into();
    written["kind"] = "KubeletConfiguration".into();
    let read = KubeletConfiguration::from_yaml(&written.to_string()).unwrap();
    let mut expected = config.clone();
    // What is empty is left out, and has a default then.
    if expected.enforce_node_allocatable.is_empty() {
        expected
            .enforce_node_allocatable
            .clone_from(&read.enforce_node_allocatable);
    }
    if expected.eviction_hard.is_empty() {
        expected.eviction_hard.clone_from(&read.eviction_hard);
    }
    prop_assert_eq!(read, expected);
    Ok(())
}
