# shellcheck shell=bash disable=SC2016
# Words for sessions on two A100 with the machine's own runc in place of the one without containers.
low=$(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin && type -P runc) || echo 'runc is not there; hint: run scripts/setup quick'
runc() { "$low" "$@"; }
mkdir spec
runc spec --bundle spec
sed -i "1s,.*,runtime = \"$low\"," base.toml
config
machine --gpu A100-80GB --count 2 --mig on

# Makes a bundle as `runc spec` does, with a program: bundle ID KEY=VALUE…
eval "annotated-$(declare -f bundle)"
bundle() {
    [ ! -e "bundles/$1/config.json" ] || return 0
    annotated-bundle "$@"
    mkdir "bundles/$1/rootfs/bin"
    cp "$(type -P busybox)" "bundles/$1/rootfs/bin/busybox"
    jq -s '.[0] * {process: {terminal: false, args: ["busybox", "true"]}} * (.[1] | {annotations, linux: {cgroupsPath: .linux.cgroupsPath}})' \
        spec/config.json "bundles/$1/original" >"bundles/$1/config.json"
    cp "bundles/$1/config.json" "bundles/$1/original"
}

# Ends a container behind runmig's back, without its hooks.
vanish() {
    script no-hook 'exit 0'
    unshare --mount sh -c 'mount --bind no-hook "$1" && exec "$2" --root root delete --force "$3"' sh "$(type -P runmig-hook)" "$low" "$1"
}

# Runs a command that is to end with a status, and shows what it says on standard error, and if it does anything else: only-says STATUS COMMAND
only-says() {
    local status=0
    "${@:2}" >printed 2>said || status=$?
    cat said
    sed 's/^/on standard output: /' printed
    [ $status = "$1" ] || echo "it ended with $status"
}

# What a refusal leaves as it was: the bundles, the driver's instances and the leases.
as-it-is() {
    find bundles -type f -exec cksum {} + | sort
    find bundles ! -type f | sort
    there
    records
}

# Has the create of a bundle's container refused, in the log in the same words, with nothing changed: refuses BUNDLE [COMMAND THAT CALLS IT]
refuses() {
    as-it-is >before
    rm -f log
    only-says 1 "${@:2}" "$(type -P runmig)" --root "${root:-root}" --log log --log-format=json create --bundle "$PWD/bundles/$1" c
    jq -r 'if .level == "error" and (.time | endswith("Z")) then .msg else . end' log | diff said -
    as-it-is | diff before -
}

# What a low-level runtime tells the hook: state ID BUNDLE [FILE WITH AN ANNOTATION]
state() {
    jq -n --arg id "$1" --arg bundle "$2" --rawfile long "${3:-/dev/null}" \
        '{ociVersion: "1.0.2", $id, status: "stopped", $bundle, annotations: (if $long == "" then {} else {$long} end)}'
}
