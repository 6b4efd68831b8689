//! The clauses of the five verbs. The tests, the list and the docs are generated from this table.

/// Passes the clauses of one group to another macro: `{ arguments } group "about" optional { clause: "sentence"; … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_verbs {
    (life_cycle, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments life_cycle
        "From start to removal" false {
        a_started_container_runs_and_is_listed_once:
            "After `start` returns, the container runs under its key, and the list has it once.";
        inspect_says_what_the_list_says:
            "`inspect` and `list` agree on a container, running or ended.";
        a_container_that_ended_stays_until_it_is_removed:
            "An ended container stays in the list, with its exit, until it is removed.";
        what_is_removed_is_gone:
            "A removed container is in no list, and `inspect` returns `Gone`.";
        an_unknown_container_is_gone:
            "`inspect` of an unknown container, attempt or pod returns `Gone`.";
        times_are_in_order_and_stay:
            "A container's times never change, and it does not end before it started.";
        a_restart_is_a_container_of_its_own:
            "The next attempt is another container. The ended one does not change, and each is removed separately.";
        a_removed_key_is_free_again:
            "A removed key can be started again.";
        a_start_that_fails_leaves_nothing_running:
            "The start of a missing program returns an error with a message, or gives a container that ended with an \
             error. Nothing runs, and the container can be stopped and removed.";
        the_runtime_has_a_name:
            "The runtime's name is one word that can be the prefix of a container id, and the runtime has a version.";
    } } };
    (idempotence, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments idempotence
        "Repeated and concurrent calls" false {
        a_key_started_twice_is_one_container:
            "A second start of a key returns the running container. There is only one, and one stop ends it.";
        starts_of_one_key_at_once_are_one_container:
            "Concurrent starts of one key return the same container.";
        a_container_that_ended_is_not_started_again:
            "The start of a key whose container ended, by itself or by a stop, returns the ended container.";
        stop_of_what_is_not_there_is_a_success:
            "Stopping a container that does not exist succeeds, and takes no grace period.";
        stop_of_what_ended_is_a_success_and_changes_nothing:
            "Stopping an ended container succeeds, and its exit does not change.";
        remove_of_what_is_not_there_is_a_success:
            "Removing a container that does not exist succeeds.";
        stops_and_removals_at_once_all_succeed:
            "Concurrent stops of one container all succeed, and so do concurrent removals.";
    } } };
    (ends, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments ends
        "How containers end" false {
        exit_codes_are_the_programs_own:
            "The exit code is the program's own.";
        an_end_has_a_reason:
            "An ended container has a reason of one word.";
        stop_returns_once_it_ended:
            "When `stop` returns, the container has ended.";
    } } };
    (cancellation, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments cancellation
        "Calls that their caller drops, as at a deadline" false {
        a_start_cut_short_can_be_tried_again:
            "A start that is dropped at any await leaves nothing, or a container in the list. Another start of the \
             key leads to one container, and one stop ends it.";
        a_start_cut_short_can_be_cleaned_up:
            "After a start that is dropped at any await, a stop and a removal leave nothing, now or later.";
        a_stop_cut_short_can_be_tried_again:
            "A stop that is dropped leaves the container in the list, and another stop ends it.";
        a_removal_cut_short_can_be_tried_again:
            "A removal that is dropped leaves the container unchanged or removes it, and another removal succeeds.";
        a_look_cut_short_changes_nothing:
            "A `list` or `inspect` that is dropped changes nothing.";
    } } };
    (concurrency, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments concurrency
        "Concurrent calls" false {
        containers_of_the_same_name_in_two_pods_are_two:
            "Containers with the same name in two pods are independent.";
        containers_of_one_pod_are_apart:
            "Containers of one pod start, end and are removed independently.";
        pods_live_and_die_side_by_side:
            "Pods are started, restarted, stopped and removed concurrently.";
        reads_and_changes_do_not_interfere:
            "Lists during the start, stop or removal of a container have it at most once. All calls succeed.";
    } } };
    (engine, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments engine
        "With the engine above: `CriRuntime` on `CriAdapter` on the runtime. A wrapper in between injects errors, hanging calls and wrong lists" false {
        a_pod_runs_and_ends:
            "A pod with two containers runs, is killed, and leaves nothing.";
        a_container_that_ended_is_restarted:
            "A container that ends is restarted as another attempt, and the exit of each attempt is reported.";
        a_lost_reply_of_start_is_one_container:
            "If the runtime starts a container but the reply is lost or never comes, one container runs in the end.";
        a_start_that_fails_or_hangs_is_tried_again:
            "A start that does not reach the runtime is retried, and one container runs in the end.";
        a_stop_that_fails_or_hangs_is_tried_again:
            "A stop that fails, hangs or loses its reply is retried, and nothing runs in the end.";
        a_removal_that_fails_or_hangs_is_tried_again:
            "A removal that fails, hangs or loses its reply is retried, and nothing is left in the end.";
        slow_calls_only_take_time:
            "If every call is slow, a pod still runs and ends.";
        a_runtime_that_was_away_finds_its_pods_as_they_were:
            "If no call reaches the runtime for a while, the same containers run afterwards.";
        a_list_that_omits_one_starts_no_second:
            "While the list omits containers, none is started twice. When the list is correct again, the same \
             containers run.";
        a_list_that_names_each_twice_changes_nothing:
            "While the list has each container twice, the same containers run.";
        the_order_of_the_list_means_nothing:
            "The same containers run, whatever the order of the list.";
        another_agent_takes_over_what_runs:
            "Another agent on the same runtime finds the same containers, and starts none.";
        an_agent_that_dies_between_create_and_start_leaves_one_container:
            "If an agent dies after the creation of a container and before its start is done, the next agent runs the \
             pod, with each container once.";
    } } };
    (capabilities, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments capabilities
        "Capabilities beyond the five verbs" false {
        the_runtime_offers_what_it_is_said_to:
            "The capabilities of the runtime (`exec`, `logs`, `stats`, `images`, `events`, `pods`) are those that the \
             test names in `offers`.";
        what_it_does_not_offer_is_refused_by_name:
            "A call that needs a missing capability returns `Unimplemented`, with the name of the capability.";
    } } };
    (signals, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments signals
        "Stop signals and grace periods" true {
        the_stop_signal_comes_first:
            "A stop sends the stop signal first. A container that handles it ends with its own exit code, and the \
             stop does not wait for the end of the grace period.";
        who_ignores_it_is_killed_when_the_grace_is_over:
            "A container that ignores the stop signal is killed at the end of the grace period, and ends with 137.";
        no_grace_is_a_kill_at_once:
            "Without a grace period the container is killed at once, and ends with 137.";
        a_second_stop_with_a_shorter_grace_is_heeded:
            "A second stop with a shorter grace period takes effect while the first one waits, and both return.";
        a_stop_that_waits_holds_up_no_other:
            "While a stop waits for the end of a grace period, other containers can be started, stopped and removed.";
    } } };
    (restart, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments restart
        "Containers outlive the agent" true {
        running_containers_are_found_again:
            "After the runtime is dropped and opened again, running containers still run, with the same start time.";
        ended_containers_are_found_again_as_they_ended:
            "Ended containers are found again, with their times, exit codes and reasons.";
        what_was_removed_stays_removed:
            "Removed containers do not come back.";
        what_was_found_again_is_not_started_again:
            "The start of a container that was found again returns it unchanged, running or ended.";
        what_was_found_again_can_be_stopped_and_removed:
            "A container that was found again can be stopped and removed.";
        a_start_cut_short_by_the_end_of_the_agent_hides_nothing:
            "If an agent ends during a start, the next agent's list has the container or not, and a start of the key \
             leads to one container.";
        twice_is_as_once:
            "The runtime can be dropped and opened again any number of times.";
        an_agent_on_the_runtime_opened_again_takes_over_what_runs:
            "An agent on the reopened runtime finds the same containers of a pod, and starts none.";
    } } };
    (logs, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments logs
        "Logs of containers" true {
        output_is_in_the_format_of_cri:
            "Each line of output is a line of the log file: time, stream, `F` and text, in order, from both streams.";
        what_is_started_twice_writes_once:
            "A container that is started twice runs once: its log has each line once, and no lines of another \
             container.";
        the_log_outlives_the_container:
            "The log stays when the container is removed.";
        after_a_rotation_output_goes_to_the_new_file:
            "After the log was rotated and `reopen` has returned, all output goes to the new file.";
        a_rotation_loses_and_doubles_nothing:
            "A rotation loses no line and writes no line twice.";
        an_unrotated_log_stays_whole_when_reopened:
            "Reopening a log that was not rotated loses nothing.";
    } } };
    (exec, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments exec
        "Commands in running containers" true {
        output_and_exit_code_come_back:
            "A command returns its exit code, its standard output and, separately, its standard error.";
        a_command_that_fails_is_no_error_of_the_call:
            "A command with an exit code other than 0 is no error of the call, and the container continues to run.";
        a_command_needs_a_running_container:
            "A command in an ended or missing container is an error.";
        a_command_cut_short_leaves_the_container_alone:
            "A command that is dropped does not change the container, and another command runs in it.";
        a_command_ends_with_its_container:
            "When the container is killed, the call of a command in it returns.";
    } } };
    (stats, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments stats
        "Resource usage of containers" true {
        a_running_container_is_measured:
            "A running container has usage. CPU time and the time of measurement never decrease.";
        of_an_unknown_container_there_is_nothing_to_measure:
            "The usage of a missing container is `Gone`.";
    } } };
    (images, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments images
        "Images" true {
        an_image_at_hand_has_an_id:
            "The image of the fixture's workloads exists, has an id, and can be found by it.";
        what_is_listed_is_at_hand:
            "Each image of the list can be found by its id.";
        a_pull_of_what_is_at_hand_is_a_success:
            "The pull of an existing image succeeds.";
        removal_of_what_is_not_there_is_a_success:
            "The removal of a missing image succeeds.";
    } } };
    (events, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments events
        "Events when containers end" true {
        an_end_is_an_event:
            "Watchers get an event when a container ends, by itself or by a stop, and then see that it has ended.";
        all_watchers_get_events:
            "All watchers get the event, even if others have gone.";
    } } };
    (pods, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments pods
        "Pods that begin and end" true {
        a_pod_that_began_is_listed_until_it_ends:
            "After `begin` returns, the list has the pod once, and `inspect` returns it. After `end` it is in no list, and \
             `inspect` returns `Gone`.";
        a_key_begun_twice_is_one_pod:
            "A second begin of a key returns the pod as it is. There is only one, and one end ends it.";
        the_next_attempt_is_a_pod_of_its_own:
            "The next attempt is another pod: each ends separately.";
        an_end_kills_what_still_runs:
            "When `end` returns, no container of the pod runs. Its containers stay in the list until they are removed, and the \
             containers of another pod run on.";
        end_of_what_is_not_there_is_a_success:
            "The end of a pod that does not exist, or has ended, succeeds.";
        a_begin_cut_short_can_be_ended:
            "After a begin that is dropped at any await, an end leaves nothing, and the key can begin again.";
        an_end_cut_short_can_be_tried_again:
            "After an end that is dropped at any await, another end leaves nothing.";
    } } };
    ($other:ident, [$($then:tt)+], $arguments:tt) => {
        ::core::compile_error!(::core::concat!(
            "a runtime on the five verbs cannot offer `", ::core::stringify!($other),
            "`; it may offer: signals, restart, logs, exec, stats, images, events, pods"
        ));
    };
}
