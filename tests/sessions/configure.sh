# shellcheck shell=bash disable=SC2016,SC1091
# Words of the sessions of migctl configure. The case goes on in a folder that is taken for /, with runmig installed in it.
unset RUNMIG_CONFIG
programs=(usr/local/bin/runmig usr/local/bin/migctl usr/local/bin/runmig-request-wants-runtime-runmig)
mkdir -p place/usr/local/bin
cd place || exit
chmod 755 .
for program in "${programs[@]}"; do
    cp "$(type -P "${program##*/}")" "$program"
done

# Puts a stand-in in the place of an engine's program: engine NAME VERSION [SCRIPT]
# It prints its version. Otherwise it prints the file that it is given, as containerd does, or does what the script says.
engine() {
    local says prints='for file; do [ ! -f "$file" ] || exec cat "$file"; done'
    case $1 in
        docker) says="Docker version $2, build x" ;;
        containerd) says="containerd github.com/containerd/containerd $2 x" ;;
        *) says="$1 version $2" ;;
    esac
    mkdir -p opt
    printf '#!/bin/sh\n[ "$1" != --version ] || exec echo "%s"\n%s\n' "$says" "${3:-$prints}" >"opt/$1"
    chmod 755 "opt/$1"
}

# Writes a file of these lines, or of the standard input: file PATH [LINE…]
file() {
    mkdir -p "$(dirname "$1")"
    if [ $# = 1 ]; then cat; else printf '%s\n' "${@:2}"; fi >"$1"
}

# migctl on this root and with the engine's stand-in. If a dry run or a refusal changes a file, it shows what.
migctl() {
    local status=0 options=()
    [ ! -e "opt/$2" ] || options=(--executable "$PWD/opt/$2")
    keep call
    usr/local/bin/migctl configure --root "$PWD" "$2" "${options[@]}" "${@:3}" || status=$?
    [[ $status = 0 && " $* " != *" --dry-run "* ]] || since call >&2
    return $status
}

# Keeps in mind what is in the folder, and shows what has changed since then, without the programs: keep NAME; since NAME
keep() {
    tar cf "../$1" --sort=name --mtime=@0 "${programs[@]/#/--exclude=./}" --exclude=./opt "${@:2}" .
}
since() {
    keep now
    cmp -s "../$1" ../now && return
    unpacked "$1" now
    diff -r --no-dereference "../$1.d" ../now.d && diff "../$1.list" ../now.list
}
unpacked() {
    local name
    for name; do
        rm -rf "../$name.d" && mkdir "../$name.d"
        tar xvvf "../$name" -C "../$name.d" >"../$name.list"
    done
}

# Makes a registration and removes it, and says what is wrong: the dry run has to change nothing and to show what is then
# made, a second run has to change nothing, and the removal has to leave what was there. In between it does what LOOK says:
# there-and-back 'migctl configure docker OPTION…' [LOOK]
there-and-back() {
    keep before
    eval "$1 --dry-run" >../shown
    since before
    eval "$1" >/dev/null
    keep made --exclude='*.before-runmig-*'
    unpacked before made
    patch --batch --silent -p1 -d ../before.d <../shown || cat ../shown
    diff -r --no-dereference ../before.d ../made.d || echo "the dry run showed something else"
    ! cmp -s ../before ../made || echo "it changed nothing"
    keep made
    eval "$1" | grep -v 'nothing to change'
    since made
    eval "${2:-}"
    eval "$1 --remove" | grep -q 'removal\|removed at once' || echo "the removal says something else"
    since before
    eval "$1 --remove" | grep -v 'nothing to change'
    since before
}

# Makes a handler the default, takes that back, and removes it, and says what is wrong: default-and-back 'migctl configure docker'
default-and-back() {
    keep before
    eval "$1 --set-as-default" >/dev/null
    eval "$1 --set-as-default" | grep -v 'nothing to change'
    eval "$1" | grep -q 'runmig no longer; hint: keep it with --set-as-default' || echo "it does not tell the end of the default"
    eval "$1 --remove" >/dev/null
    since before
}
