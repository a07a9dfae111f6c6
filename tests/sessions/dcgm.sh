# shellcheck shell=bash disable=SC2016,SC1091
# Words for sessions of migctl dcgm reload: processes that are called like dcgm-exporter, in surroundings of their own.

. "$REPOSITORY/tests/sessions/doctor.sh"

# Starts one that writes the moment of each SIGHUP into NAME/signals: exporter NAME
exporter() {
    mkdir "$1"
    mkfifo "$1/pipe"
    cp /bin/bash "$1/dcgm-exporter"
    # It starts no process: until that calls exec, it would have the exporter's name, too.
    cat >"$1/script" <<END
trap 'echo \${EPOCHREALTIME//[.,]/} >>$1/signals' HUP
exec 3<>$1/pipe
: >$1/signals
while :; do read -t 0.05 -u 3; done
END
    # Below nohup the signal is ignored, and a shell cannot trap it then.
    inside "env --default-signal=HUP $1/dcgm-exporter $1/script </dev/null >/dev/null 2>&1 & echo \$! >$1/pid"
    until-so "[ -e $1/signals ]"
}

# Lets its process look 20 s older: it is of the age that a reload wants then.
grown() {
    local stat
    read -ra stat < <(inside "cat /proc/\$(cat $1/pid)/stat")
    stat[21]=$((stat[21] - 2000))
    echo "${stat[*]}" >"$1/stat"
    inside "mount --bind $1/stat /proc/\$(cat $1/pid)/stat"
}

# Shows the outcome for each by its name: reload OPTION…
reload() {
    local said file
    said=$(inside migctl dcgm reload -o json "$@" | fields pid outcome) || return
    for file in */pid; do
        sed -n "s,^$(cat "$file") ,${file%/pid} ,p" <<<"$said"
    done
}

# Waits for so many signals, and says how many there are: signals NAME NUMBER
signals() {
    until-so "[ \$(wc -l <$1/signals) -ge $2 ]"
    wc -l <"$1/signals"
}

# Lets the last reload be a minute ago, so that the next one is due.
minute-later() {
    jq -c '.time -= 60000' state/dcgm-reload.json >later
    mv later state/dcgm-reload.json
}
