# shellcheck shell=bash disable=SC2016,SC1091
# Words for sessions of migctl list and migctl top: a GPU in MIG mode and two without MIG, claims, a watch, a terminal.

machine --gpu A100-80GB --gpu L4 --count 2
config 'sharing.enforcement = ["none"]'
uuid=$(sim show --json | jq -r '.gpus[0].uuid')

# Gives a claim of the namespace team-a a small slice of GPU 0: claim UID START
claim() { stub-claims prepare "$1" "$uuid" 1g.10gb "$2" 1; }

# Starts migctl list --watch, and returns once it has printed all and waits.
watch() {
    setpriv --pdeathsig KILL migctl list --watch >watched 2>&1 &
    watcher=$!
    until-so 'grep -qs CONTAINER watched'
    stands "$watcher"
}

# Waits until a process is in a poll without an end: nothing but the kernel's reports wakes it.
# shellcheck disable=SC2034 # the condition is read later
stands() {
    local poll='^7 0x[0-9a-f]+ 0x[0-9a-f]+ 0x[0-9a-f]*f{8} '
    [ "$(uname -m)" = x86_64 ] || poll='^73 0x[0-9a-f]+ 0x[0-9a-f]+ 0x0 '
    until-so "[[ \$(</proc/$1/syscall) =~ \$poll ]]"
}

# The last tables that the watch has printed, without the ages.
last() { tac watched | sed '/^CONTAINER/q' | tac | sed -E 's/ +[0-9]+s( +[0-9]+)?$//; s/ +(AGE|FOR +PID)$//'; }

# Starts tmux with a window of 80x24, in which a shell waits. It ends with the case.
terminal() {
    # The status line would take a row.
    echo 'set -g status off' >tmux.conf
    setpriv --pdeathsig KILL tmux -D -u -S tmux -f tmux.conf &
    # With -N it is that server, and no other.
    until-so "on-terminal -N new-session -d -x 80 -y 24 'env PS1=ready: sh -i' 2>/dev/null"
    until-so 'shows ready:'
}
on-terminal() { tmux -u -S tmux "$@"; }
screen() { on-terminal capture-pane -p; }
shows() { screen | grep -qF -- "$1"; }
press() { on-terminal send-keys "$@"; }
types() { press -l "$1" && press Enter; }

# Starts the page, which only changes draw again. Its pid is in the file `pid`.
page() {
    types 'clear; echo before'
    types "sh -c 'echo \$\$ >pid; exec migctl top --delay 1h $*'"
    until-so 'shows "q quit"'
}
