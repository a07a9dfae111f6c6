# shellcheck shell=bash disable=SC2181
# Words of the sessions (session.rs), in bash. A key without a dot is one of runmig.dev; these others have short names.
declare -A long=(
    [pod]=io.kubernetes.cri.sandbox-id [pod-name]=io.kubernetes.cri.sandbox-name
    [pod-uid]=io.kubernetes.cri.sandbox-uid [namespace]=io.kubernetes.cri.sandbox-namespace
    [container-name]=io.kubernetes.cri.container-name
) pids=()
cp config.toml base.toml

# Makes a machine in place of the one A30-24GB, as `nvml-sim new` does: machine --gpu A100-80GB --count 2 --mig on
machine() {
    rm -rf machine theirs
    nvml-sim new machine "$@" >/dev/null
}

# Configures runmig: keys first, then tables.
config() {
    head -n 4 base.toml
    printf '%s\n' "$@"
    tail -n +5 base.toml
} >config.toml

# What an administrator and the hardware do: sim VERB ARGUMENTS
sim() {
    local status=0
    nvml-sim "$1" machine "${@:2}" || status=$?
    # What they end themselves is not missed.
    case $1 in destroy | reset | reboot | mig)
        [ ! -e theirs ] || { grep -xFf <(made) theirs >theirs-now; mv theirs-now theirs; }
        ;;
    esac
    return $status
}

# The GPU instances, each with its GPU, its first memory slice, and a number that no other one has had.
made() {
    jq -r '.gpus | to_entries[] | .key as $gpu | .value.gpu_instances[] | "\($gpu) \(.placement.start) #\(.generation)"' machine/state.json
}

# Makes an instance that is not of runmig's, and keeps in mind that it has to stay: theirs GPU PROFILE START
theirs() {
    sim create --gpu "$1" --profile "$2" --start "$3" >/dev/null
    made | grep "^$1 $3 " >>theirs
}

# Installs a simulated program of NVIDIA's on the machine: has nvidia-smi, has nvidia-cuda-mps-control
has() {
    mkdir -p machine/usr/bin
    cp "$(command -v "$1")" machine/usr/bin/
}

# Makes a bundle, unless it is there: bundle ID KEY=VALUE…
bundle() {
    local id=$1 pair key annotations=
    [ ! -e "bundles/$id/config.json" ] || return 0
    for pair in "${@:2}"; do
        key=${pair%%=*}
        [[ $key = *.* ]] || key=${long[$key]:-runmig.dev/$key}
        annotations+="${annotations:+, }\"$key\": \"${pair#*=}\""
    done
    mkdir -p "bundles/$id/rootfs"
    tee "bundles/$id/config.json" >"bundles/$id/original" <<END
{"ociVersion": "1.0.2",  "unknown": 12345678901234567890.5,
  "process": {"args": ["sh"], "cwd": "/", "env": ["PATH=/bin"]}, "root": {"path": "rootfs"},
  "annotations": {$annotations},
  "mounts": [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}],
  "linux": {"cgroupsPath": "/${PWD##*/}-$id", "resources": {"devices": [{"allow": false, "access": "rwm"}]}}}
END
}

runmig() { command runmig --root root "$@"; }

# Creates a container: create ID KEY=VALUE…
create() {
    bundle "$@"
    runmig create --bundle "bundles/$1" "$1"
}

# Starts a create that waits, and returns once it stands in the queue: waiting ID KEY=VALUE…
waiting() {
    create "$@" wait=10m >"said-$1" 2>&1 &
    pids[$1]=$!
    until-so "queue | grep -qxF -- $1" || cat "said-$1"
}

# Asks again until a command succeeds.
until-so() {
    local end=$((SECONDS + 50))
    until eval "$1"; do
        [ $SECONDS -lt $end ] || { echo "never: $1" && return 1; }
        sleep 0.02
    done
}

# The containers that wait, in order.
queue() {
    tail -n 1 state/ledger.json 2>/dev/null | jq -r '.queue.tickets[]?.waiter.container'
}

# Waits for the end of a create that waits, and shows what it says: ended ID
ended() {
    local status=0
    wait "${pids[$1]}" || status=$?
    cat "said-$1"
    return $status
}

delete() {
    local id
    for id; do runmig delete --force "$id"; done
}

# Ends a container behind runmig's back, without its hooks.
vanish() {
    echo no-hooks >root/behaviour
    runc --root root delete --force "$1"
    : >root/behaviour
}

# Fields of leases, a line a lease: leases KEY…   Fields of another list: fields KEY… <JSON
leases() { migctl list -o json | fields "$@"; }
fields() {
    local keys
    keys=$(printf '.%s,' "$@")
    jq -r ".items[] | [${keys%,}] | map(if type == \"object\" then tojson else tostring end) | join(\" \")"
}

# The MIG devices or GPUs of a container: given ID
given() {
    jq -r '.process.env[] | select(startswith("NVIDIA_VISIBLE_DEVICES=")) | sub(".*="; "")' "bundles/$1/config.json"
}

# Says what is wrong with what a container has, unless its bundle, its leases and the driver agree: holds ID
holds() {
    local record bundle device
    record=$(migctl list -o json | jq -r --arg id "$1" '.items[] | select(.container == $id) | .migUUID // .gpuUUID' | sort)
    bundle=$(given "$1" | tr , '\n' | sort)
    [ -n "$bundle" ] && [ "$bundle" = "$record" ] || echo "$1 was given $bundle, and has on record $record"
    for device in $bundle; do
        sim show --json | grep -F "\"$device\"" >/dev/null || echo "there is no $device"
    done
}

# Ends all containers and collects. Prints what is left then, which is to be nothing.
all-end() {
    local folder
    for folder in root/*/; do
        [ ! -d "$folder" ] || runmig delete --force "$(basename "$folder")"
    done
    migctl gc >/dev/null || migctl gc
    left
}

# Prints what is left without a container, which is to be nothing.
left() {
    local bundle
    migctl list --no-headers
    made | grep -vxFf <(cat theirs 2>/dev/null; echo none) | sed 's/^/a GPU instance is left: /'
    [ ! -e theirs ] || grep -vxFf <(made; echo none) theirs | sed 's/^/an instance of theirs is gone: /'
    [ ! -e state/ledger.json ] || { queue; tail -n 1 state/ledger.json | jq -c '.earlier[]?'; }
    [ ! -d state/operations ] || ls state/operations
    for bundle in bundles/*/; do
        [ -d "$bundle" ] || break
        cmp "$bundle/original" "$bundle/config.json"
        find "$bundle" -mindepth 1 -maxdepth 1 ! -name config.json ! -name original ! -name rootfs
    done
    daemons
    return 0
}

# Ends containers, which were all that there was, and prints what is left without a collection: ends ID…
ends() {
    delete "$@"
    left
}

# Writes a program of the shell, with its folders: script FILE LINE…
script() {
    mkdir -p "$(dirname "$1")"
    printf '#!/bin/sh\nPATH=/usr/sbin:/usr/bin:/sbin:/bin\n' >"$1"
    printf '%s\n' "${@:2}" >>"$1"
    chmod 755 "$1"
}

# Writes layout.yaml, whose layout `wanted` has these entries. One without braces is of instances on GPU 0: layout '1g.6gb: 2'
layout() {
    local entry
    printf 'version: v1\nmig-configs:\n  wanted:\n'
    for entry; do
        [[ $entry = '{'* ]] || entry="{devices: [0], mig-enabled: true, mig-devices: {$entry}}"
        printf '  - %s\n' "$entry"
    done
} >layout.yaml

# Applies such a layout: applies ENTRY… [--OPTION…]
applies() {
    local entries=()
    while [[ $# -gt 0 && $1 != -* ]]; do entries+=("$1") && shift; done
    layout "${entries[@]}"
    migctl apply -f layout.yaml "$@"
}

# The GPU instances that the driver has: GPU, profile, place, a number that no other one has had, and MIG devices.
there() {
    sim show --json | jq -r --slurpfile state machine/state.json '.gpus[] | .index as $gpu | .gpuInstances[]? | .id as $id |
        ($state[0].gpus[$gpu].gpu_instances[] | select(.id == $id).generation) as $made |
        "\($gpu) \(.profile) \(.placement.start):\(.placement.size) #\($made) \([.computeInstances[].migUUID] | join(" "))"' | sort
}

# Holds an instance open, as a process that runs CUDA does: hold GPU GI [CI]   lets-go ends it.
hold() {
    rm -f held
    nvml-sim hold machine --gpu "$1" ${2:+--gi "$2"} ${3:+--ci "$3"} >held 2>&1 &
    holder=$!
    until-so '[ -s held ]'
}
lets-go() {
    kill "$holder"
    wait "$holder" || true
}

# Runs a command, and shows the driver calls that made or destroyed something: changes COMMAND
changes() {
    local status=0
    sim trace on
    "$@" || status=$?
    sim trace off
    sim trace show | awk '$2 ~ /Create|Destroy/ { print $2 }'
    return $status
}

# Has a process open a file, until lets-go.
opening() {
    exec 7<"$1"
    tail -f /dev/null &
    holder=$!
    exec 7<&-
}

# The counters that are not 0: counted creates releases …
counted() {
    migctl metrics --no-driver | grep -E "^runmig_($(IFS='|' && echo "$*"))_total" | grep -v ' 0$'
    return 0
}

# Fields of events, a line an event: events KEY… [-- OPTION…]
events() {
    local keys=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do keys+=("$1") && shift; done
    migctl events -o json "${@:2}" | jq -s '{items: .}' | fields "${keys[@]}"
}

# The series of a family as JSON objects, which have a value beside the labels: series FAMILY <EXPOSITION
series() {
    jq -Rc --arg family "$1" 'capture("^(?<name>\\w+)(\\{(?<labels>.*)\\})? (?<value>[^ ]*)$") | select(.name == $family) |
        ([.labels // "" | scan("(\\w+)=(\"(?:[^\"\\\\]|\\\\.)*\")") | {key: .[0], value: .[1] | fromjson}] | from_entries) +
        {value: .value | tonumber}'
}

# The id of the lease of a container.
lease() { migctl list -o json | jq -r --arg id "$1" '.items[] | select(.container == $id).id'; }

# Calls the poststop hook of a container that has ended, and waits for what goes on behind it: hook ID LEASE
hook() {
    jq -n --arg id "$1" '{ociVersion: "1.0.2", $id, status: "stopped", bundle: "\(env.PWD)/bundles/\($id)"}' |
        runmig-hook --lease "$2" --config config.toml 2>&1 | cat
    return "${PIPESTATUS[1]}"
}

# Kills a command at its first call of a function of the driver: kills before|after CALL COMMAND
kills() {
    local status=0
    sim fault --call "$2" --nth 1 --kill "$1"
    { "${@:3}"; } 2>/dev/null || status=$?
    sim fault --clear
    [ $status = 137 ] || echo "it ended with $status"
}

# A create is refused in the words of explain: explained KEY=VALUE…
# Prints the verdicts of explain and the line once, and whatever differs. What explain says is in the file `told`.
explained() {
    local line pair asks=()
    for pair; do
        case $pair in
        slice=*) asks+=("${pair#*=}") ;;
        share=* | gpu=* | compute=* | namespace=*) asks+=("--${pair%%=*}" "${pair#*=}") ;;
        pod-name=*) asks+=(--pod "${pair#*=}") ;;
        esac
    done
    ((++explained))
    line=$(create "explained-$explained" "$@" 2>&1)
    [ $? = 1 ] || echo 'the create ends otherwise'
    line=${line#runmig: }
    migctl explain "${asks[@]}" -o json >told 2>said
    [ $? = 1 ] || echo 'explain ends otherwise'
    if [ ! -s told ]; then
        sed 's/^migctl: //' said | tee said-1 | diff <(echo "$line") - && cat said-1
        return
    fi
    jq -r '([.alternatives[].verdict] | join(", ")) + ": " + .error, (select(.fits) | "it fits")' told
    jq -r .error told | diff <(echo "$line") -
    # The only alternative is the whole answer, also as a table, which ends with a plan or a hint.
    if jq -e '.alternatives | length == 1' told >said; then
        jq -r '.alternatives[0] | "\(.why); hint: \(.hint)"' told | diff <(echo "$line") -
        migctl explain "${asks[@]}" | sed -n '1p; /^hint: /p; s/^fits then: .*/a plan/p' |
            diff <(jq -r '.alternatives[0] | "\(.verdict): \(.why)", if .restarts == [] then "hint: \(.hint)" else "a plan" end' told) -
    fi
}

# Damages the ledger.
damage() {
    local file=state/ledger.json
    case $1 in
        missing) rm $file ;;
        empty) : >$file ;;
        zeros) head -c 4096 /dev/zero >$file ;;
        bytes) printf '\xff\xfe%.0s' {1..2500} >$file ;;
        changed) sed -i 's/victim/victin/' $file ;;
        large) truncate -s 1G $file ;;
        link) ln -f $file elsewhere && ln -sf "$PWD/elsewhere" link && mv -T link $file ;;
        folder) rm $file && mkdir $file ;;
        older) mv $file.1 $file ;;
    esac
}

# Has every verb that would read or change the ledger refused, with nothing changed, and says why: once, if all say the same.
refused() {
    local verb
    there >before
    {
        # shellcheck disable=SC2086
        for verb in list gc 'explain 1g.6gb' inspect 'release victim' gpus; do
            migctl $verb 2>&1 >/dev/null
            [ $? = 1 ] || echo "$verb ends otherwise"
        done
        create other slice=1g.6gb 2>&1
        [ $? = 1 ] || echo 'create ends otherwise'
    } | sed 's/^[a-z]*: //' | sort | uniq -c
    there | diff before -
    cmp bundles/other/config.json bundles/other/original
}

# Mounts a small file system in memory as the state directory, until the case says `umount state`: disk OPTIONS
disk() {
    mkdir -p state
    mount -t tmpfs -o "$1,mode=700" tmpfs state
}

# Calls for a claim of the pod train, as runmig-dra makes them: promise UID PROFILE START:SIZE [GPU]   prepare the same   unprepare UID
for-claim() { stub-claims "$1" "$2" "$(gpu-uuid "${5:-0}")" "$3" "${4%:*}" "${4#*:}"; }
promise() { for-claim promise "$@"; }
prepare() { for-claim prepare-at-once "$@"; }
unprepare() { stub-claims unprepare "$1"; }
gpu-uuid() { sim show --json | jq -r ".gpus[$1].uuid"; }

# Starts a Prepare that waits for what is in its way, for a minute at most: preparing UID PROFILE START:SIZE   Its end: ended UID
preparing() {
    for-claim prepare-patiently "$@" >"said-$1" 2>&1 &
    pids[$1]=$!
}

# A process that stands for the init of the container `c`, which the next calls of its hooks name: lives   dies
lives() {
    sleep 1000 &
    init=$!
}
dies() {
    [ "$init" = 0 ] || kill "$init"
    wait "$init" || init=0
}

# The hook of a claim for the container `c`, which is of the pod train if its annotations tell nothing else: attach UID [JSON]   detach UID
attach() { claim-hook attach "$@"; }
detach() { init=0 claim-hook detach "$@"; }
claim-hook() {
    local train='{"io.kubernetes.cri.sandbox-name": "train", "io.kubernetes.cri.sandbox-uid": "pod-uid", "number": 1}'
    jq -n --argjson pid "${init:-0}" --argjson annotations "${3:-$train}" \
        '{ociVersion: "1.0.2", id: "c", status: "created", bundle: "/bundles/c", $pid, $annotations}' |
        runmig-claim "$1" --claim "$2" --device device
}

# Makes a bundle of a container of the pod train as the CDI files of these claims leave it: with-claims ID UID…
with-claims() {
    bundle "$1" namespace=team-a pod-name=train pod-uid=pod-uid
    local uid hook attach='' detach=''
    for uid in "${@:2}"; do
        hook="{\"path\": \"$(command -v runmig-claim)\", \"timeout\": 30, \"args\": [\"runmig-claim\", \"VERB\", \"--claim\", \"$uid\", \"--device\", \"device\"]}"
        attach+=${attach:+, }${hook/VERB/attach} detach+=${detach:+, }${hook/VERB/detach}
    done
    sed -i "s|\"linux\": {|\"hooks\": {\"createRuntime\": [$attach], \"poststop\": [$detach]},\n  &|
        s|\"PATH=/bin\"|&, \"NVIDIA_VISIBLE_DEVICES=void\", \"RUNMIG_SLICE_SLICE=x\"|" "bundles/$1/config.json"
    cp "bundles/$1/config.json" "bundles/$1/original"
}

# The leases, and the instances without one, that the ledger has.
records() {
    [ ! -e state/ledger.json ] || tail -n 1 state/ledger.json | jq -c '.leases[], .instances[]'
}

# Tries a layout that is refused, first with --dry-run. Prints the plan and the refusal, and what either has changed: nothing.
refuses-layout() {
    local before now dry
    before=$(there; records)
    layout "$@"
    for dry in --dry-run ''; do
        changes migctl apply -f layout.yaml $dry 2>"refusal$dry"
        [ $? = 1 ] || echo 'it ends otherwise'
        now=$(there; records)
        [ "$now" = "$before" ] || diff <(echo "$before") <(echo "$now")
    done
    diff refusal--dry-run refusal
    cat refusal
}

# Has runmig read named.toml, which has these lines, as a runtime with a name of its own does. config.toml beside it is for all.
named() {
    printf '%s\n' "$@" >named.toml
    export RUNMIG_CONFIG=$PWD/named.toml
}

# The process of a container that waits, once it stands still: waiter ID
waiter() {
    local pid
    pid=$(migctl list -o json | jq --arg id "$1" '.waiting[] | select(.container == $id).pid')
    until-so "grep -q poll /proc/$pid/wchan"
    echo "$pid"
}

# Stops the process of a container that waits, until goes-on: stops ID
stops() {
    stopped[$1]=$(waiter "$1")
    kill -STOP "${stopped[$1]}"
    until-so "grep -q '^State:.*stopped' /proc/${stopped[$1]}/status"
}
declare -A stopped=()
goes-on() { kill -CONT "${stopped[$1]}"; }

# Creates as many containers with a slice of the small machine as there is room for.
full() {
    local n
    for n in 0 1 2 3; do create "full$n" slice=1g.6gb; done
}

# The MIG mode of each GPU, and the pending one where that is another.
modes() {
    sim show --json | jq -r '[.gpus[] | .mig + if .mig == .migPending then "" else ", pending \(.migPending)" end] | to_entries[] | "\(.key) \(.value)"'
}

# Installs an nvidia-smi that notes its call in reset-begins, and waits for reset-goes-on before or after it resets: slow-reset before|after
slow-reset() {
    local wait="echo \"\$@\" >>$PWD/reset-begins; until [ -e $PWD/reset-goes-on ]; do sleep 0.02; done"
    has nvidia-smi
    mv machine/usr/bin/nvidia-smi machine/usr/bin/smi
    case $1 in
        before) script machine/usr/bin/nvidia-smi "$wait" "exec $PWD/machine/usr/bin/smi \"\$@\"" ;;
        after) script machine/usr/bin/nvidia-smi "$PWD/machine/usr/bin/smi \"\$@\" || exit" "$wait" ;;
    esac
}

# Prints which views of an operator fail, and what they say.
looks() {
    local look
    for look in gpus 'gpus -o json' inspect list 'top --once' metrics 'explain 1g.10gb'; do
        # shellcheck disable=SC2086
        migctl $look >shown 2>&1 || { echo "$look" && cat shown; }
    done
}

# Creates the container POD-NAME in a pod of the namespace `team`, as containerd marks it: in-pod POD NAME KEY=VALUE…
in-pod() {
    create "$1-$2" namespace=team pod-name="$1" pod-uid="$1" pod="$1" container-name="$2" "${@:3}"
}

# Makes a machine with two GPUs in MIG mode and two without, on which shares need no MPS: mixed CONFIGURATION…
mixed() {
    machine --gpu A100-80GB --count 2 --gpu L4 --count 2 --mps
    config 'sharing.enforcement = ["none"]' "$@"
}

# Gives that machine a lease of every kind, and an instance of an administrator.
fill() {
    in-pod web one slice=1g.10gb scope=pod
    in-pod web two slice=1g.10gb scope=pod
    in-pod job alone slice=2g.20gb
    in-pod seats left slice=3g.40gb share=1/4
    in-pod seats right slice=3g.40gb share=1/2
    in-pod infer a share=4Gi
    in-pod infer b share=8Gi
    in-pod whole main gpu=1
    prepare train 2g.20gb 0:2 1
    theirs 1 3g.40gb 4
}

# Prints what promtool, where setup has brought it, has against an exposition: accepted FILE   It warns of `modelName`, which
# dcgm-exporter spells so.
accepted() {
    [ -n "$PROMTOOL" ] || return 0
    "$PROMTOOL" check metrics <"$1" 2>&1 | grep -v "^runmig_gpu_info.*camelCase'$"
    return 0
}

# Asks the endpoint over a socket: sends the standard input, and prints the answer. With `closing` it says that no more will come,
# and with `gone` the client does not wait for the answer.
ask() {
    perl -MSocket -e '
        socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, 0) or die $!;
        if (!fork) {
            open STDIN, "<&", $theirs; open STDOUT, ">&", $theirs; close $ours;
            exec qw(migctl metrics --http);
        }
        close $theirs;
        $SIG{PIPE} = "IGNORE";
        while (sysread STDIN, my $part, 4096) { syswrite $ours, $part or last }
        my $how = $ARGV[0] // "";
        shutdown $ours, 1 if $how eq "closing";
        if ($how eq "gone") { close $ours } else { while (sysread $ours, my $part, 4096) { print $part } }
        wait; exit($? & 127 ? 128 + ($? & 127) : $? >> 8)' -- "$@"
}

# Writes the whole ledger anew, changed by a command of sed: rewrite SED
rewrite() {
    local header body hash
    { read -r header && read -r body; } < <(sed "$1" state/ledger.json)
    header=$(jq -c '.sha256 = ""' <<<"$header")
    hash=$(printf '%s\n' "$header" "$body" | sha256sum)
    header=$(jq -c --arg hash "${hash%% *}" '.sha256 = $hash' <<<"$header")
    printf '%s\n' "$header" "$body" >state/ledger.json
}

# The MPS daemons that are there, each by its directory and its process.
daemons() {
    [ ! -d state/mps ] || ls state/mps
    find /proc/[0-9]*/exe -maxdepth 0 -lname "$PWD/machine/usr/bin/nvidia-cuda-mps-control" -printf '%h\n' 2>/dev/null |
        sed 's|/proc/|process |'
}

# Starts a create that hangs in the driver while it makes its instance, with the lock of the GPU: hangs ID KEY=VALUE…
hangs() {
    bundle "$@"
    sim fault --call nvmlDeviceCreateGpuInstanceWithPlacement --nth 1 --takes 600s
    command runmig --root root create --bundle "bundles/$1" "$1" 2>/dev/null &
    maker=$!
    until-so 'sim fault --list | grep "\"seen\":1" >seen'
}
kill-maker() {
    kill -KILL "$maker"
    wait "$maker" 2>/dev/null
    sim fault --clear
}

# Runs a command whose outputs go into the files `transcript` and `said`, and shows the end of the latter if it fails:
# [lines=N] runs COMMAND…
runs() {
    local status=0
    "$@" >transcript 2>said || status=$?
    [ $status = 0 ] || tail -n "${lines:-100}" said
    return $status
}
