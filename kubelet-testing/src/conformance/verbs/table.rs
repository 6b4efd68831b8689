//! The clauses of the five verbs in words: from here come the tests, the list and the docs.

/// Hands the clauses of one group to another macro: `{ arguments } group "about" optional { clause: "sentence"; … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_verbs {
    (life_cycle, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments life_cycle
        "From start to removal" false {
        a_started_container_runs_and_is_listed_once:
            "Once `start` returned, the container runs under the key it was given, and the list has it once.";
        inspect_says_what_the_list_says:
            "`inspect` and `list` say the same of a container, running or ended.";
        a_container_that_ended_stays_until_it_is_removed:
            "A container that ended stays in the list, with how it ended, until it is removed.";
        what_is_removed_is_gone:
            "What was removed is in no list, and `inspect` of it is `Gone`.";
        an_unknown_container_is_gone:
            "`inspect` of a container, an attempt or a pod that never was is `Gone`.";
        times_are_in_order_and_stay:
            "A container's times are told the same whenever one looks, and it does not end before it began.";
        a_restart_is_a_container_of_its_own:
            "The next attempt is another container: the ended one stays as it is, and each is removed by itself.";
        a_removed_key_is_free_again:
            "A key that was removed can be started anew.";
        a_start_that_fails_leaves_nothing_running:
            "A program that is not there is an error that says something, or a container that ended with an error; \
             nothing runs, and it can be stopped and removed.";
        the_runtime_has_a_name:
            "The runtime's name is one word that can begin a container id, and it has a version.";
    } } };
    (idempotence, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments idempotence
        "What is done twice is done once" false {
        a_key_started_twice_is_one_container:
            "A second start of a key gives the container that runs; there is one, and one stop ends it.";
        starts_of_one_key_at_once_are_one_container:
            "Several starts of one key at once give one and the same container.";
        a_container_that_ended_is_not_started_again:
            "A start of a key whose container ended, by itself or by a stop, gives it as it ended.";
        stop_of_what_is_not_there_is_a_success:
            "A stop of what is not there is a success, and takes none of its grace.";
        stop_of_what_ended_is_a_success_and_changes_nothing:
            "A stop of what ended is a success, and it ended as it did.";
        remove_of_what_is_not_there_is_a_success:
            "A removal of what is not there, or no longer, is a success.";
        stops_and_removals_at_once_all_succeed:
            "Several stops of one container at once all succeed, and so do several removals.";
    } } };
    (ends, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments ends
        "How containers end" false {
        exit_codes_are_told_as_they_are:
            "The exit code is the program's own.";
        an_end_has_a_reason:
            "The end of a container has a reason of one word.";
        stop_returns_once_it_ended:
            "When `stop` returns, the container has ended.";
    } } };
    (cancellation, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments cancellation
        "Callers that go before they have their answer, as they do at a deadline" false {
        a_start_cut_short_can_be_tried_again:
            "A start that is dropped at any await leaves nothing or a container in the list; another start of the key \
             leads to one container, which one stop ends.";
        a_start_cut_short_can_be_cleaned_up:
            "After a start that is dropped at any await, a stop and a removal leave nothing, then and later.";
        a_stop_cut_short_can_be_tried_again:
            "A stop that is dropped leaves the container in the list, and another stop ends it.";
        a_removal_cut_short_can_be_tried_again:
            "A removal that is dropped leaves the container as it was or not at all, and another removal succeeds.";
        a_look_cut_short_changes_nothing:
            "A `list` or `inspect` that is dropped changes nothing.";
    } } };
    (concurrency, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments concurrency
        "Many at once" false {
        containers_of_the_same_name_in_two_pods_are_two:
            "Containers of the same name in two pods have nothing to do with each other.";
        containers_of_one_pod_are_apart:
            "Containers of one pod start, end and go each by itself.";
        pods_live_and_die_side_by_side:
            "Pods are started, restarted, stopped and removed side by side.";
        looks_and_doings_do_not_meet:
            "Lists asked for while a container is started, stopped or removed have it at most once, and fail nothing.";
    } } };
    (engine, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments engine
        "Under the engine: `CriRuntime` on `CriAdapter` on the runtime, with a wrapper between that has calls fail, hang and lie" false {
        a_pod_runs_and_ends:
            "A pod of two containers runs, is killed, and leaves nothing.";
        a_container_that_ended_is_started_anew:
            "A container that ends is started anew, as another attempt, and how each ended is told.";
        a_lost_reply_of_start_is_one_container:
            "A start that the runtime did and whose answer was lost, or never came, leads to one running container.";
        a_start_that_fails_or_hangs_is_tried_again:
            "A start that did not reach the runtime is tried again, and leads to one running container.";
        a_stop_that_fails_or_hangs_is_tried_again:
            "A stop that failed, hung or whose answer was lost is tried again, and nothing runs in the end.";
        a_removal_that_fails_or_hangs_is_tried_again:
            "A removal that failed, hung or whose answer was lost is tried again, and nothing is left in the end.";
        slow_calls_only_take_time:
            "When every call is slow, a pod runs and ends all the same.";
        a_runtime_that_was_away_finds_its_pods_as_they_were:
            "When no call reached the runtime for a while, the same containers run afterwards.";
        a_list_that_omits_one_starts_no_second:
            "While the list omits containers none is started a second time, and when it is right again the same run.";
        a_list_that_names_each_twice_changes_nothing:
            "While the list names each container twice, the same containers run.";
        the_order_of_the_list_means_nothing:
            "In whichever order the list is, the same containers run.";
        another_agent_takes_over_what_runs:
            "Another agent on the same runtime finds the same containers, and starts none.";
        an_agent_that_dies_between_create_and_start_leaves_one_container:
            "An agent that dies after a container was made and before its start was done leaves a pod that the next one \
             runs, each container once.";
    } } };
    (capabilities, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments capabilities
        "What it can do beside the five verbs" false {
        the_runtime_offers_what_it_is_said_to:
            "What the runtime says that it has (`exec`, `logs`, `stats`, `images`, `events`) is what the test names in `offers`.";
        what_it_does_not_offer_is_refused_by_name:
            "A call that needs what the runtime does not offer is refused as `Unimplemented`, with the name of it.";
    } } };
    (signals, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments signals
        "Stop signals and grace periods" true {
        the_stop_signal_comes_first:
            "A stop asks first: who heeds the signal ends with its own exit code, and the stop does not wait for the \
             end of the grace.";
        who_ignores_it_is_killed_when_the_grace_is_over:
            "Who ignores the stop signal is killed when the grace is over, and ended with 137.";
        no_grace_is_a_kill_at_once:
            "Without grace there is no asking: the container is killed, and ended with 137.";
        a_second_stop_with_a_shorter_grace_is_heeded:
            "A second stop with a shorter grace is heeded while the first one waits, and both return.";
        a_stop_that_waits_holds_up_no_other:
            "While a stop waits for the end of a grace, other containers are started, stopped and removed.";
    } } };
    (restart, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments restart
        "The agent goes, the containers stay" true {
        running_containers_are_found_again:
            "After the runtime was dropped and opened again, what ran still runs, with the same time of start.";
        ended_containers_are_found_again_as_they_ended:
            "What had ended is found again with its times, exit code and reason.";
        what_was_removed_stays_removed:
            "What was removed does not come back.";
        what_was_found_again_is_not_started_again:
            "A start of what was found again gives it as it is, running or ended.";
        what_was_found_again_can_be_stopped_and_removed:
            "What was found again can be stopped and removed.";
        a_start_cut_short_by_the_end_of_the_agent_hides_nothing:
            "An agent that goes in the midst of a start leaves nothing or a container in the list of the next one, and \
             a start of the key leads to one container.";
        twice_is_as_once:
            "It may be dropped and opened again any number of times.";
        an_agent_on_the_runtime_opened_again_takes_over_what_runs:
            "An agent on the runtime opened again finds the same containers of a pod, and starts none.";
    } } };
    (logs, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments logs
        "What containers write" true {
        output_is_in_the_format_of_cri:
            "Each line of output is a line of the log file: time, stream, `F` and text; in order, with both streams.";
        what_is_started_twice_writes_once:
            "A container that is started twice has run once: its log has each line once, and none of another's.";
        the_log_outlives_the_container:
            "The log stays when the container is removed.";
        after_a_rotation_output_goes_to_the_new_file:
            "When `reopen` returned, after the log was rotated away, all further output goes to the new file.";
        a_rotation_loses_and_doubles_nothing:
            "Over a rotation no line is lost and none written twice.";
        an_unrotated_log_stays_whole_when_reopened:
            "When a log is reopened that was not rotated away, nothing of it is lost.";
    } } };
    (exec, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments exec
        "Commands in running containers" true {
        output_and_exit_code_come_back:
            "Of a command come back its exit code, its standard output and, apart, its standard error.";
        a_command_that_fails_is_no_error_of_the_call:
            "A command that exits with another code than 0 is no error of the call, and the container runs on.";
        a_command_needs_a_running_container:
            "A command in what ended or is not there is an error.";
        a_command_cut_short_leaves_the_container_alone:
            "A command that is dropped leaves the container as it was, and another command runs in it.";
        a_command_ends_with_its_container:
            "When the container is killed, the call of a command in it comes to an end.";
    } } };
    (stats, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments stats
        "What containers use" true {
        a_running_container_is_measured:
            "A running container is measured; CPU time and the time of measurement never go back.";
        of_an_unknown_container_there_is_nothing_to_measure:
            "The usage of a container that is not there is `Gone`.";
    } } };
    (images, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments images
        "Images" true {
        an_image_at_hand_has_an_id:
            "The image of the fixture's workloads is at hand, has an id, and is found by it.";
        what_is_listed_is_at_hand:
            "Each image of the list is found by its id.";
        a_pull_of_what_is_at_hand_is_a_success:
            "A pull of an image that is at hand is a success.";
        removal_of_what_is_not_there_is_a_success:
            "The removal of an image that is not there is a success.";
    } } };
    (events, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments events
        "The runtime says by itself that a container ended" true {
        an_end_is_told:
            "The end of a container, by itself or by a stop, is told to who watched before; who looks then sees it.";
        all_who_watch_are_told:
            "All who watch are told, whoever else has gone.";
    } } };
    ($other:ident, [$($then:tt)+], $arguments:tt) => {
        ::core::compile_error!(::core::concat!(
            "a runtime on the five verbs cannot offer `", ::core::stringify!($other),
            "`; it may offer: signals, restart, logs, exec, stats, images, events"
        ));
    };
}
