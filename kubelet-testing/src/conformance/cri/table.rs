//! The clauses of CRI in words: from here come the tests, the list and the docs.

/// Hands the clauses of one group to another macro: `{ arguments } group "about" optional { clause: "sentence"; … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cri {
    (runtime, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments runtime
        "The runtime itself" false {
        it_says_who_it_is:
            "The runtime has a name of one word that can begin a container id, a version, and speaks `v1`.";
        it_says_that_it_is_ready:
            "Its status has the conditions `RuntimeReady` and `NetworkReady`, and they are true.";
        it_says_what_is_used_on_disk:
            "`ImageFsInfo` has a file system with its folder, the bytes used and the time of measurement: a Go kubelet \
             refuses a runtime that does not answer this call.";
    } } };
    (sandboxes, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments sandboxes
        "Sandboxes from run to removal" false {
        a_sandbox_is_ready_once_it_was_run:
            "Once `RunPodSandbox` returned, the sandbox is ready, by its status and in the list, there once.";
        a_sandbox_is_told_as_it_was_asked_for:
            "Metadata, labels and annotations are told as they were asked for, with the time at which it was \
             made.";
        a_stopped_sandbox_is_not_ready_and_stays:
            "A stopped sandbox is not ready, and is listed until it is removed.";
        a_removed_sandbox_is_not_found:
            "What was removed is in no list, and its status is `NotFound`.";
        an_unknown_sandbox_is_not_found:
            "The status of a sandbox that never was is `NotFound`.";
        a_stop_kills_its_containers:
            "A stop of the sandbox ends its containers, which stay in the list.";
        a_removal_takes_its_containers_along:
            "A removal of the sandbox removes its containers, those too that were never started.";
        the_next_attempt_is_another_sandbox:
            "The next attempt of a pod's sandbox is another one, and each is removed by itself.";
        it_takes_no_container_to_be_ready:
            "A sandbox is ready whatever its containers do, and without any.";
    } } };
    (containers, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments containers
        "Containers from create to removal" false {
        what_is_created_is_not_started:
            "What was created is in the state created, has a time at which it was made, and none of start.";
        what_is_started_runs:
            "Once `StartContainer` returned, the container runs, by its status and in the list, and its times \
             are in order.";
        a_container_is_told_as_it_was_asked_for:
            "Metadata, labels, annotations, image and sandbox are told as they were asked for, by its status \
             and in the list.";
        nothing_is_started_twice:
            "A start of what runs or ended is an error, and changes nothing.";
        what_ended_stays_until_it_is_removed:
            "A container that ended stays in the list as it ended until it is removed; it started and ended after it was \
             created.";
        what_is_removed_is_not_found:
            "What was removed, ended, stopped or never started, is in no list, and its status is `NotFound`.";
        a_removal_kills_what_runs:
            "A removal of a running container kills it.";
        an_unknown_container_is_not_found:
            "The status of a container that never was is `NotFound`.";
        there_is_none_without_a_ready_sandbox:
            "In a sandbox that was stopped, or never was, no container can be started.";
        a_restart_is_a_container_of_its_own:
            "The next attempt is another container: the ended one stays as it is, and each is removed by \
             itself.";
        a_start_that_fails_can_be_cleaned_up:
            "A container whose program is not there does not run, can be removed, and its name is free for \
             another try.";
    } } };
    (idempotence, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments idempotence
        "What is done twice is done once" false {
        stop_and_removal_of_what_is_not_there_do_no_harm:
            "Stop and removal of what is not there are a success, or `NotFound`.";
        a_second_stop_of_a_container_changes_nothing:
            "A stop of what ended is a success, and it ended as it did.";
        sandboxes_are_stopped_and_removed_any_number_of_times:
            "A sandbox can be stopped and removed again and again.";
        stops_at_once_all_succeed:
            "Several stops of one container or sandbox at once all succeed.";
    } } };
    (ends, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments ends
        "How containers end" false {
        exit_codes_are_told_as_they_are:
            "The exit code is the program's own.";
        an_end_has_a_reason:
            "The end of a container has a reason of one word.";
        a_stop_returns_once_it_ended:
            "When `StopContainer` returns, the container has ended.";
    } } };
    (lists, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments lists
        "Filters" false {
        containers_are_found_by_what_they_are:
            "`ListContainers` filters by id, state, sandbox and labels, and by several of them.";
        sandboxes_are_found_by_what_they_are:
            "`ListPodSandbox` filters by id, state and labels.";
    } } };
    (cancellation, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments cancellation
        "Callers that go before they have their answer, as they do at a deadline" false {
        a_run_of_a_sandbox_cut_short_can_be_tried_again:
            "A `RunPodSandbox` that is dropped at any await leaves nothing, or a sandbox that comes into the \
             list and can be removed; then the same one can be run, and a container in it.";
        a_creation_cut_short_leaves_no_name_taken_for_ever:
            "A `CreateContainer` that is dropped leaves a container in the list, or one that can be created; what is \
             in the list starts, or can be removed and created.";
        a_start_cut_short_shows_what_it_came_to:
            "A `StartContainer` that is dropped leaves the container in the list; it can be stopped and \
             removed, and the next attempt runs.";
        a_stop_cut_short_can_be_tried_again:
            "A stop of a container or sandbox that is dropped can be tried again, and ends it.";
    } } };
    (concurrency, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments concurrency
        "Many at once" false {
        pods_live_and_die_side_by_side:
            "Pods are run, restarted, stopped and removed side by side.";
        containers_of_the_same_name_in_two_pods_are_two:
            "Containers of the same name in two pods have nothing to do with each other.";
        containers_of_one_pod_start_side_by_side:
            "Containers of one pod are created and started at once, and each is ended by itself.";
    } } };
    (engine, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments engine
        "Under the engine: `CriRuntime` on the services, with a wrapper between that has calls fail, hang and lie" false {
        a_pod_runs_and_ends:
            "A pod of two containers runs, is killed, and leaves nothing.";
        a_container_that_ended_is_started_anew:
            "A container that ends is started anew, as another attempt, and how each ended is told.";
        a_sandbox_whose_run_fails_or_hangs_is_tried_again:
            "A `RunPodSandbox` that failed, hung or whose answer was lost leads to one running container.";
        a_creation_that_fails_or_hangs_is_tried_again:
            "A `CreateContainer` that failed, hung or whose answer was lost leads to one running container.";
        a_lost_reply_of_start_is_one_container:
            "A start that the runtime did and whose answer was lost, or never came, leads to one running \
             container.";
        a_start_that_fails_or_hangs_is_tried_again:
            "A start that did not reach the runtime is tried again, and leads to one running container.";
        a_stop_that_fails_or_hangs_is_tried_again:
            "A stop that failed, hung or whose answer was lost is tried again, and nothing runs in the end.";
        a_removal_that_fails_or_hangs_is_tried_again:
            "A removal that failed, hung or whose answer was lost is tried again, and nothing is left in the \
             end.";
        a_sandbox_whose_stop_or_removal_fails_or_hangs_is_tried_again:
            "A stop or removal of a sandbox that failed, hung or whose answer was lost is tried again, and \
             nothing is left in the end.";
        slow_calls_only_take_time:
            "When every call is slow, a pod runs and ends all the same.";
        a_runtime_that_was_away_finds_its_pods_as_they_were:
            "When no call reached the runtime for a while, the same containers run afterwards.";
        what_the_lists_omitted_is_found_again_and_ended:
            "When lists that omitted sandboxes and containers are right again the pod runs, and when it is killed nothing \
             of it is left, whatever was started in the meantime.";
        a_list_that_names_each_twice_changes_nothing:
            "While the list names each container twice, the same containers run.";
        the_order_of_the_list_means_nothing:
            "In whichever order the lists are, the same containers run.";
        another_agent_takes_over_what_runs:
            "Another agent on the same runtime finds the same containers, and starts none.";
        an_agent_that_dies_between_create_and_start_leaves_one_container:
            "An agent that dies after a container was created and before its start was done leaves a pod that \
             the next one runs, each container once.";
    } } };
    (images, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments images
        "Images" false {
        an_image_at_hand_has_id_and_size:
            "The image of the fixture's workloads is at hand, has an id and a size, and is found by its id.";
        what_is_listed_is_at_hand:
            "Each image of the list is found by its id.";
        removal_of_what_is_not_there_is_a_success:
            "The removal of an image that is not there is a success.";
    } } };
    (capabilities, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments capabilities
        "What it does not offer" false {
        what_it_does_not_offer_is_refused_as_unimplemented:
            "A call that the runtime does not offer (`exec`, `logs`, `stats`, `events`) is refused as \
             `Unimplemented`.";
    } } };
    (signals, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments signals
        "Stop signals and grace periods" true {
        the_stop_signal_comes_first:
            "A stop asks first: who heeds the signal ends with its own exit code, and the stop does not wait \
             for the end of the grace.";
        who_ignores_it_is_killed_when_the_grace_is_over:
            "Who ignores the stop signal is killed when the grace is over, and ended with 137.";
        no_grace_is_a_kill_at_once:
            "Without grace there is no asking: the container is killed, and ended with 137.";
        a_stop_of_the_sandbox_ends_a_stop_that_waits:
            "A stop of the sandbox kills what another stop is waiting for, and both return.";
        a_stop_that_waits_can_be_given_up_and_hurried:
            "A stop that waits can be given up; another one without grace kills.";
    } } };
    (restart, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments restart
        "The runtime goes and comes back, the containers stay" true {
        what_ran_is_found_again:
            "After the runtime was closed and opened again, what ran still runs, in its sandbox, with the \
             same labels and times.";
        what_ended_is_found_again_as_it_ended:
            "What had ended is found again with its times, exit code and reason.";
        what_was_not_started_can_be_started_or_cleared_away:
            "What was created and not started can be started, or says that it cannot; it can be removed, and \
             the next attempt runs.";
        what_was_removed_stays_removed:
            "What was removed does not come back.";
        what_was_found_again_can_be_stopped_and_removed:
            "What was found again can be stopped and removed.";
        an_agent_on_the_runtime_opened_again_takes_over_what_runs:
            "An agent on the runtime opened again finds the same containers of a pod, and starts none.";
    } } };
    (logs, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments logs
        "What containers write" true {
        output_is_in_the_format_of_cri:
            "Each line of output is a line of the log file that was asked for: time, stream, `F` and text; in \
             order, with both streams. It outlives the container.";
        after_a_rotation_output_goes_to_the_new_file:
            "After the log was rotated away and reopened, output goes to the new file.";
        a_rotation_loses_and_doubles_nothing:
            "Over a rotation no line is lost and none written twice.";
        the_log_of_what_ended_is_not_reopened:
            "To reopen the log of what ended is an error.";
    } } };
    (exec, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments exec
        "Commands in running containers" true {
        output_and_exit_code_come_back:
            "Of a command come back its exit code, whichever it is, its standard output and, apart, its \
             standard error.";
        a_command_needs_a_running_container:
            "A command in what ended or is not there is an error.";
        a_command_that_takes_too_long_is_told_from_one_that_fails:
            "A command that runs past its timeout is `DeadlineExceeded`, and another command runs in the \
             container.";
        a_command_ends_with_its_container:
            "When the container is killed, the call of a command in it comes to an end.";
    } } };
    (stats, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments stats
        "What containers use" true {
        a_running_container_is_measured:
            "A running container is measured; CPU time and the time of measurement never go back.";
        the_list_has_all_that_runs_once:
            "`ListContainerStats` has each running container once.";
    } } };
    (events, [$($then:tt)+], $arguments:tt) => { $($then)+! { $arguments events
        "The runtime says by itself what becomes of containers" true {
        start_end_and_removal_are_told:
            "Start, end and removal of a container are told to who watched before.";
        an_end_by_itself_is_told:
            "The end of a container by itself is told, and who looks then sees it.";
    } } };
    ($other:ident, [$($then:tt)+], $arguments:tt) => {
        ::core::compile_error!(::core::concat!(
            "a runtime on CRI cannot offer `", ::core::stringify!($other),
            "`; it may offer: signals, restart, logs, exec, stats, events"
        ));
    };
}
