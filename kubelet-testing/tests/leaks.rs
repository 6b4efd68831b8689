//! Leaked files and children of the process are detected. This is one test, because they belong to the whole process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use kubelet_testing::LeakCheck;

#[tokio::test]
async fn files_and_children_that_stay_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("left open");
    let leaks = LeakCheck::process();
    let file = std::fs::File::create(&path).unwrap();
    let again = file.try_clone().unwrap();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let now = leaks.now();
    let open: Vec<_> = now.files().collect();
    assert_eq!(open, [path.to_str().unwrap(); 2]);
    assert_eq!(
        now.children().map(|(pid, _)| pid).collect::<Vec<_>>(),
        [child.id().cast_signed()]
    );

    drop((file, again));
    child.kill().unwrap();
    // Killed, and now a zombie.
    let ended =
        kubelet_testing::eventually!(leaks.now().to_string(), |leaks| leaks.contains("not waited for"));
    assert_eq!(
        ended,
        format!("child {} (sleep, ended and not waited for)", child.id())
    );
    child.wait().unwrap();
    leaks.assert_none().await;
}
