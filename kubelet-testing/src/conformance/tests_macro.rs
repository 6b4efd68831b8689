//! The macro that makes tests of clauses.

/// Makes a test for each clause: see the [module](mod@crate::conformance).
///
/// Use `conformance!(verbs: FIXTURE, offers: [exec, logs])` for a runtime with the five verbs. Use `conformance!(cri:
/// FIXTURE, …)` for a runtime with the two services of CRI; the kit can also convert a runtime with the five verbs.
/// The macro makes no tests for capabilities that are not in `offers`, but it tests that the runtime rejects them
/// clearly. Use it once per module.
#[macro_export]
macro_rules! conformance {
    (verbs: $fixture:ty $(, offers: [$($offer:ident),* $(,)?])? $(,)?) => {
        $crate::__conformance_tests!(
            verbs, __conformance_verbs, $fixture,
            [life_cycle idempotence ends cancellation concurrency engine capabilities],
            [$($($offer)*)?]
        );
    };
    (cri: $fixture:ty $(, offers: [$($offer:ident),* $(,)?])? $(,)?) => {
        $crate::__conformance_tests!(
            cri, __conformance_cri, $fixture,
            [runtime sandboxes containers idempotence ends lists cancellation concurrency engine images capabilities],
            [$($($offer)*)?]
        );
    };
}

/// The tests of some groups.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ($height:ident, $table:ident, $fixture:ty, [$($required:ident)*], [$($offer:ident)*]) => {
        type ConformanceFixture = $fixture;
        const CONFORMANCE_OFFERS: &[&str] = &[$(::core::stringify!($offer)),*];
        $($crate::$table!($required, [$crate::__conformance_group], { $height });)*
        $($crate::$table!($offer, [$crate::__conformance_group], { $height });)*
    };
}

/// The tests of one group.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_group {
    ({ $height:ident } $group:ident $about:literal $optional:literal { $($clause:ident: $sentence:literal;)* }) => {
        mod $group {
            $(
                #[test]
                fn $clause() -> $crate::conformance::Verdict {
                    $crate::conformance::$height::check::<super::ConformanceFixture>(
                        ::core::stringify!($group),
                        ::core::stringify!($clause),
                        super::CONFORMANCE_OFFERS,
                    )
                }
            )*
        }
    };
}

/// One group as a value.
macro_rules! group {
    ({} $group:ident $about:literal $optional:literal { $($clause:ident: $sentence:literal;)* }) => {
        Group {
            name: stringify!($group),
            about: $about,
            optional: $optional,
            clauses: &[$(Clause {
                name: stringify!($clause),
                sentence: $sentence,
                run: |bench| Box::pin($group::$clause(bench)),
            }),*],
        }
    };
}
pub(crate) use group;

/// One group as a part of the docs.
macro_rules! group_docs {
    ({} $group:ident $about:literal $optional:literal { $($clause:ident: $sentence:literal;)* }) => {
        concat!(
            "## `", stringify!($group), "`: ", $about, "\n\n",
            $("* `", stringify!($clause), "`: ", $sentence, "\n",)*
        )
    };
}
pub(crate) use group_docs;
