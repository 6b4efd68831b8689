#!/bin/sh
# The first process of each container: `run BEHAVIOUR [SECONDS] [EXIT CODE]`.
#
# It holds a lock for as long as any process of the container lives. Each line of the file `runs` is one step of a container:
# seconds since the host started, UID and name of the pod, container, policy, step.

note() {
    read -r now _ < /proc/uptime
    echo "$now $POD_UID $POD_NAME $CONTAINER $POLICY $*" >> /witness/runs
}

end() {
    note end "$1"
    exit "$1"
}

# The kernel frees a lock when the last process with its file has ended.
exec 9>> "/witness/locks/$POD_UID.$CONTAINER"
/witness/flock -n 9 || note twice
if [ -n "$ONE_OF_A_NAME" ]; then
    exec 8>> "/witness/locks/$POD_NAME.$CONTAINER"
    /witness/flock -n 8 || note twice-of-a-name
fi
note start

serve() {
    trap 'note term; sleep '"${1:-0}"'; exit 0' TERM
    while :; do
        sleep 3600 &
        wait $!
    done
}

case $1 in
    # Ends `SECONDS` after SIGTERM.
    serve) serve "$2" ;;
    # The same, with a web server on port 8080.
    web) httpd -p 8080 -h /witness/www; serve "$2" ;;
    # The file of its liveness probe goes after some seconds.
    sick) touch /tmp/alive; (sleep "$2"; rm -f /tmp/alive) & serve 0 ;;
    # It must be killed.
    stubborn) trap '' TERM; while :; do sleep 3600; done ;;
    finish) sleep "$2"; end "$3" ;;
    # The first run of a pod fails.
    fail-once)
        sleep "$2"
        [ -e /scratch/failed ] && end 0
        touch /scratch/failed
        end 1
        ;;
esac
