# shellcheck shell=bash disable=SC2016,SC2034
# Words for sessions of the packages that scripts/package makes.

packages=$REPOSITORY/target/package
[ -e "$packages/SHA256SUMS" ] || echo 'no packages in target/package: scripts/package'
deb=$(echo "$packages"/*.deb) rpm=$(echo "$packages"/*.rpm) tarball=$(echo "$packages"/*.tar.gz)
wanted=etc/systemd/system/timers.target.wants/runmig-gc.timer
programs=(migctl runmig runmig-hook runmig-request-wants-runtime-runmig runmig-slice)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$REPOSITORY/Cargo.toml" | head -n 1)
umask 022

# The cache and cargo are where the tests have them.
while IFS= read -r -d '' pair; do
    case $pair in
        HOME=* | RUNMIG_CACHE=* | CARGO_HOME=* | RUSTUP_*) export "${pair?}" ;;
        PATH=*) PATH+=:${pair#*=} ;;
    esac
done <"/proc/$PPID/environ"

# This version is told as VERSION.
plain() { sed "s/${version//./\\.}/VERSION/g"; }

# Unpacks the .deb into the folder `deb`.
unpacked() {
    dpkg-deb -x "$deb" deb
    dpkg-deb -e "$deb" deb/DEBIAN
}

# The files of a root. Packages compress manual pages, and have documents of their own: contents FOLDER
contents() {
    find "$1" -type f -printf '%P\n' | sed 's/\.gz$//' | sort |
        grep -Ev '^(DEBIAN|var|root/\.rpmdb|usr/(share/lintian|share/licenses|lib/sysimage))/|/(copyright|changelog\.Debian)$'
}

# Changes a bit in the middle of a file, or changes it back.
flip() {
    local at=$(($(stat -c %s "$1") / 2)) byte
    byte=$(od -An -tu1 -j$at -N1 "$1")
    printf '%b' "\\0$(printf %o $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}

# Makes packages of the folder `made` with a copy of the sources: packs FOLDER
packs() {
    mkdir -p "$1"
    tar -C "$REPOSITORY" --exclude=target --exclude=.git -c . | tar -C "$1" -x
    SOURCE_DATE_EPOCH=1764000000 "$1/scripts/package" --from made
}

# Runs rpm on a root, or a command that does, without the warning of Debian's rpm: rpm-at FOLDER OPTION…
rpm-at() { unwarned rpm --root "$PWD/$1" "${@:2}"; }
unwarned() {
    local status=0
    "$@" 2>said || status=$?
    grep -v '^rpm: ' said | plain
    return $status
}

# Debian 11 in the folder `debian`: glibc 2.31, no systemd, no driver, no Rust, no low-level runtime.
debian() {
    local archive=${RUNMIG_CACHE:-$HOME/.cache/runmig}/roots/debian11.tar
    [ -e "$archive" ] || echo 'no root of Debian 11: scripts/setup full'
    mkdir -p debian/packages
    tar -C debian -xf "$archive"
}

# The same with the .deb in /packages, and one of an earlier version.
debian-with-debs() {
    debian
    cp "$deb" debian/packages/new.deb
    dpkg-deb -R "$deb" earlier
    sed -i 's/^Version: .*/Version: 0.0.1-1/' earlier/DEBIAN/control
    age earlier
    dpkg-deb -Znone -b earlier debian/packages/earlier.deb >/dev/null
}

# The same with the .rpm, and one of an earlier version, without scripts.
debian-with-rpms() {
    debian
    cp "$rpm" debian/packages/new.rpm
    mkdir earlier
    rpm-at earlier -i --nodeps --noscripts "$rpm"
    age earlier
    printf '%s\n' 'Name: runmig' 'Version: 0.0.1' 'Release: 1' 'Summary: earlier' 'License: Apache-2.0' 'AutoReqProv: no' \
        %description earlier %install 'mkdir -p %{buildroot}/usr' 'cp -a %{content}/usr/bin %{buildroot}/usr' \
        'cp -a %{content}/etc %{buildroot}' %files '/usr/bin/*' '%config(noreplace) /etc/runmig/config.toml' >spec
    rpmbuild -bb --quiet --define "_topdir $PWD/top" --define "content $PWD/earlier" --define "_rpmdir $PWD/debian/packages" \
        --define '__os_install_post %{nil}' --define '_build_name_fmt earlier.rpm' spec >said 2>&1 || cat said
}

# Makes the files below a folder those of the earlier version.
age() {
    local name
    for name in "${programs[@]}"; do printf earlier >>"$1/usr/bin/$name"; done
    echo '# The defaults of an earlier version.' >>"$1/etc/runmig/config.toml"
}

# The programs that are those of the earlier version.
earlier() {
    local name
    for name in "${programs[@]}"; do
        [ "$(tail -c 7 "debian/usr/bin/$name" | tr -d '\0')" != earlier ] || echo "$name"
    done
}

# Runs a command of the shell inside Debian: inside WORD…   Runs rpm on it, with the scripts of its packages inside: rpm-inside OPTION…
inside() { mounted chroot "$PWD/debian" /bin/sh -c "$*"; }
rpm-inside() { unwarned mounted rpm --root "$PWD/debian" "$@"; }
mounted() {
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root unshare --mount \
        /bin/sh -ec 'mount --rbind /proc "$0/proc"; mount --rbind /dev "$0/dev"; exec "$@"' "$PWD/debian" "$@"
}

# All paths in it but those that dpkg and rpm keep for themselves.
files() {
    inside 'find / -xdev \( -path /packages -o -path /var/lib/dpkg -o -path /var/log -o -path /var/lib/rpm -o -path /usr/lib/sysimage \
        -o -path /root \) -prune -o -print' | sort
}

# What is new there since `files >before`, and what is gone.
differences() { files | diff before - | sed -n 's/^> /new: /p; s/^< /gone: /p'; }

# What dpkg has on record.
status() { inside "dpkg-query --show --showformat '\${db:Status-Status} \${Version}\n' runmig" | plain; }

# The program of the CDI devices for slices.
request-hook() { grep -o '"path":"[^"]*"' debian/etc/cdi/runmig-slice.yaml | sort -u; }

# What the programs in a folder say of their version. runmig and runmig-slice look for the low-level runtime: there is none, then that
# of k3s or RKE2, where a link leads to the current one: starts FOLDER
starts() {
    local name link target runc
    for name in migctl runmig-hook; do inside "$1/$name --version || echo it ends with \$?" | plain | sed -n '1p; /^it ends/p'; done
    both-start "$1"
    while read -r link target runc; do
        mkdir -p debian/var/lib/rancher/{rke2,k3s/data}
        script "debian/var/lib/rancher/$target/$runc" "echo $runc of $target"
        ln -s "/var/lib/rancher/$target" "debian/var/lib/rancher/$link"
        both-start "$1"
        rm -r debian/var/lib/rancher
    done <<<'k3s/data/current k3s/data/1f2e bin/runc
rke2/bin rke2/data/v1.37/bin runc'
}
both-start() {
    local name
    for name in runmig runmig-slice; do
        inside "$1/$name --version; echo it ends with \$?" 2>&1 | plain | paste -sd '|'
    done | uniq -c | sed 's/^ *2 /both: /; s/|/, /g'
}

# Copies the ledger to where the programs inside look for it, as one of this machine's boot.
copy-ledger() {
    rm -rf debian/run/runmig
    cp -a state debian/run
    (cd debian/run && rewrite "s/\"boot\":\"[^\"]*\"/\"boot\":\"$(cat /proc/sys/kernel/random/boot_id)\"/" && mv state runmig)
}

# Puts a program before that of the same name, which it may call: gate NAME LINE…   A gate ends with `stays`.
gate() { script "debian/gate/$1" "${@:2}"; }
stays='touch /gate/reached; exec sleep 600'

# Starts dpkg with the gates before its programs. Kills it, and then all that it started, once a gate is reached: killed-dpkg ARGUMENT…
killed-dpkg() {
    local pid status=0 reached=debian/gate/reached
    inside 'echo $$ >/gate/pid; PATH=/gate:$PATH; exec setsid dpkg' "$@" >printed 2>&1 &
    pid=$!
    until-so "[ -e $reached ] || ! kill -0 $pid"
    [ ! -e $reached ] || kill -KILL "$(cat debian/gate/pid)"
    { wait $pid; } 2>/dev/null || status=$?
    [ ! -e $reached ] || kill -KILL -- "-$(cat debian/gate/pid)"
    [ $status = 137 ] || { echo "it ended with $status" && cat printed; }
    rm -r debian/gate
}
