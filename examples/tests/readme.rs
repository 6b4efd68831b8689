//! The agents in the README are the compiled examples.

const README: &str = include_str!("../../README.md");

#[test]
fn the_agents_of_the_readme_are_compiled() {
    for example in [
        include_str!("../agent-on-processes.rs"),
        include_str!("../runtime-of-your-own.rs"),
        include_str!("../../kubelet-agent/examples/node-of-your-own.rs"),
    ] {
        let (_about, code) =
            example.split_once("\n\nuse ").expect("an example begins with its docs, then imports");
        let code = format!("```rust\nuse {}\n```", code.trim_end());
        assert!(README.contains(&code), "the README does not show what is compiled:\n{code}");
    }
}
