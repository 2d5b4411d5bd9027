# The probe for a node without python3: the main numbers from nvidia-smi, /proc and df. POSIX sh with awk, df and dd.
#
# Run as  sh -c TEXT sh PERIOD PATH...  TEXT is this file, PERIOD is whole seconds, and every PATH is a disk.
# It prints the lines of trainmon/model/probe_wire/: hello, host, gpu, gpus, disk, trouble, bye. It does not read logs
# or switch files. Standard input is the lease: its end, or 60 s without a byte, ends everything that was started here.
# Nothing is written to a disk. What may hang (nvidia-smi, df) runs as a child that is abandoned and never waited for.
# Settings: TRAINMON_PCI (/sys/bus/pci/devices), TRAINMON_LEASE (60 s), and TRAINMON_PATIENCE (5 s, after which a df
# counts as hung; four times that for nvidia-smi).

export LC_ALL=C PATH="$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
renice -n 19 -p $$ >/dev/null 2>&1
lease=${TRAINMON_LEASE:-60} patience=${TRAINMON_PATIENCE:-5}
period=${1%%.*}
[ "${period:-0}" -ge 1 ] 2>/dev/null || period=1
shift

clock=+%s.%N
case $(date $clock) in *[!0-9.]*) clock=+%s ;; esac
now() { date $clock; }
reading() { printf '{"v":1,"t":%s,"k":"%s",%s}\n' "$(now)" "$1" "$2"; }

# emit COMMAND ARGUMENT...: print its output in one piece: lines of commands that run at the same time must not mix.
emit() {
    output=$("$@")
    [ -z "$output" ] || printf '%s\n' "$output"
}

# Shared awk: JSON strings of untrusted text; a number or null; the first line of a file.
json='
function text(s,   i, c, out) {
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        out = out (c == "\n" ? "\\n" : c == "\t" ? "\\t" : c == "\\" || c == "\"" ? "\\" c : c < " " ? "?" : c)
    }
    return "\"" out "\""
}
function plain(s) { gsub(/[^\040-\176]/, "?", s); return text(s) }
function number(s) { return s ~ /^-?[0-9]+(\.[0-9]+)?$/ ? s : "null" }
function first(file,   line) { if ((getline line < file) <= 0) line = ""; close(file); return line }
'

# identify PID: set $id to PID:START and $state. Once a process has ended, its PID may become that of a stranger.
identify() {
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null
    # shellcheck disable=SC2086
    set -- "$1" ${stat##*") "}
    state=$2 id=$1:${21}
}

# lives ID: whether this very process runs. A zombie, which nobody may ever reap, does not.
lives() {
    identify "${1%:*}"
    case $state in "" | [XZ]) false ;; *) [ "$id" = "$1" ] ;; esac
}

# end ID...: end these processes and all their children. Each is stopped before its children are listed, so that it starts
# no more. They end from the leaves to the roots: who waits for a root may end us, and then none is left over.
end() {
    roots= all= before=none
    for one in "$@"; do ! lives "$one" || roots="$roots ${one%:*}"; done
    # Listed until nothing is new: one that is in the middle of a fork stops after it, and a child that ends while a list
    # is read may hide others (proc(5)).
    while [ "$all" != "$before" ]; do
        before=$all all=
        # shellcheck disable=SC2086
        set -- $roots
        while [ $# -gt 0 ]; do
            below= tries=0
            kill -STOP "$1" 2>/dev/null
            while identify "$1" && [ "$state" = R ] && [ $tries -lt 1000 ]; do tries=$((tries + 1)); done
            { read -r below <"/proc/$1/task/$1/children"; } 2>/dev/null
            all="$1 $all"
            shift
            # shellcheck disable=SC2086
            set -- "$@" $below
        done
    done
    # shellcheck disable=SC2086
    kill $all 2>/dev/null
    # shellcheck disable=SC2086
    kill -CONT $all 2>/dev/null
}

# with_limit SECONDS REPORT COMMAND ARGUMENT...: emit the command; past its limit, emit the report every 10 s until it ends.
with_limit() {
    limit=$1 report=$2
    shift 2
    emit "$@" &
    identify $!
    command=$id
    (
        sleep "$limit"
        while lives "$command"; do
            ! lives "$main" || emit $report
            end "$command"
            sleep 10
        done
    ) 2>/dev/null &
    identify $!
    guard=$id
    wait "${command%:*}" 2>/dev/null
    end "$guard"
    wait "${guard%:*}" 2>/dev/null
}

hello() {
    awk -v host="$(uname -n)" -v probe="$probe" -v t="$(now)" "$json"'
    BEGIN {
        while ((getline line < "/proc/stat") > 0) {
            if (line ~ /^btime /) boot = substr(line, 7)
            if (line ~ /^cpu[0-9]/) cpus++
        }
        split(first("/proc/meminfo"), total, " ")
        driver = first("/sys/module/nvidia/version")
        printf "{\"v\":1,\"t\":%s,\"k\":\"hello\",\"host\":%s,\"probe\":\"%s\",\"driver\":%s,\"boot_time\":%s,", t,
            plain(host), probe, driver == "" ? "null" : plain(driver), number(boot)
        printf "\"cpu_count\":%d,\"memory_total_mib\":%.0f,", cpus, total[2] / 1024
        print "\"note\":\"no usable python3: only the main numbers, no logs, switches, checkpoints or W&B files\"}"
    }'
}

sample_host() {
    awk -v t="$(now)" "$json"'
    function sum(folder, names,   i, n, list, value, all) {
        n = split(names, list, " ")
        for (i = 1; i <= n; i++) {
            value = first(folder "/" list[i])
            if (value ~ /^[0-9]+$/) all += value; else if (list[i] ~ /_errors$/) return "null"
        }
        return sprintf("%.0f", all)
    }
    BEGIN {
        split(first("/proc/loadavg"), load, " ")
        while ((getline line < "/proc/meminfo") > 0) { split(line, pair, " "); memory[pair[1]] = pair[2] }
        while ((getline line < "/proc/vmstat") > 0) if (line ~ /^oom_kill /) kills = substr(line, 10)
        while ((getline line < "/proc/stat") > 0) if (line ~ /^btime /) boot = substr(line, 7)
        for (i = 1; i < ARGC; i++) {
            folder = ARGV[i]
            if (sub(/\/device$/, "", folder) && first(folder "/statistics/rx_errors") != "") {
                found = 1
                network += first(folder "/statistics/rx_errors") + first(folder "/statistics/tx_errors")
            }
            if (folder ~ /^\/sys\/class\/infiniband/ && first(folder "/state") != "") {
                split(folder, part, "/")
                state = first(folder "/state"); sub(/^[0-9]+: */, "", state)
                errors = sum(folder "/counters",
                    "symbol_error port_rcv_errors link_error_recovery local_link_integrity_errors")
                ports = ports (ports == "" ? "" : ",") sprintf("{\"port\":%s,\"state\":%s,\"link_downed\":%s,\"errors\":%s}",
                    plain(part[5] "/" part[7]), plain(state), number(first(folder "/counters/link_downed")), errors)
            }
        }
        known = ("MemTotal:" in memory) && ("MemAvailable:" in memory)
        printf "{\"v\":1,\"t\":%s,\"k\":\"host\",\"load1\":%s,\"memory_used_mib\":%s,\"memory_total_mib\":%s,", t,
            number(load[1]), known ? sprintf("%.0f", (memory["MemTotal:"] - memory["MemAvailable:"]) / 1024) : "null",
            known ? sprintf("%.0f", memory["MemTotal:"] / 1024) : "null"
        printf "\"boot_time\":%s,\"oom_kills\":%s,\"network_errors\":%s,\"infiniband\":[%s]}\n", number(boot),
            number(kills), found ? sprintf("%.0f", network) : "null", ports
    }' /sys/class/net/*/device /sys/class/infiniband/*/ports/*
}

sample_disk() {
    blocks=": does not exist"
    [ ! -e "$1" ] || blocks=$(df -P -k "$1" 2>&1)
    inodes=$(df -P -i "$1" 2>/dev/null)
    path=$1 blocks=$blocks inodes=$inodes awk -v t="$(now)" "$json"'
    # Parsed from the right: the name of a device or a mount point may have spaces.
    function columns(table, found,   line, n, rows) {
        n = split(table, rows, "\n"); line = rows[n]
        if (n < 2 || !match(line, / -?[0-9]+ +-?[0-9]+ +-?[0-9]+ +([0-9]+%|-) +\//)) return 0
        point = substr(line, RSTART + RLENGTH - 1)
        split(substr(line, RSTART, RLENGTH), found, " ")
        return 1
    }
    function amount(value, unit) { return sprintf("%.0f", (value < 0 ? 0 : value) * unit) }
    BEGIN {
        head = sprintf("{\"v\":1,\"t\":%s,\"k\":\"disk\",\"d\":[{\"path\":%s", t, text(ENVIRON["path"]))
        if (!columns(ENVIRON["blocks"], bytes)) {
            why = ENVIRON["blocks"]; sub(/^.*: /, "", why)
            print head ",\"state\":\"error\",\"error\":" plain(why == "" ? "df prints nothing" : why) "}]}"
            exit
        }
        mount = point
        while ((getline line < "/proc/self/mountinfo") > 0) {
            split(line, field, " "); shown = field[5]; gsub(/\\040/, " ", shown)
            if (shown != mount) continue
            right = substr(line, index(line, " - ") + 3); split(right, rest, " ")
            type = rest[1]; frozen = ("," field[6] "," rest[3] ",") ~ /,ro,/ ? "true" : "false"
        }
        printf "%s,\"mount\":%s,\"filesystem\":%s,\"read_only\":%s", head, plain(mount),
            type == "" ? "null" : plain(type), frozen == "" ? "null" : frozen
        if (bytes[1] > 0) printf ",\"total_bytes\":%s,\"free_bytes\":%s", amount(bytes[1], 1024), amount(bytes[3], 1024)
        if (columns(ENVIRON["inodes"], files) && files[1] > 0)
            printf ",\"total_inodes\":%s,\"free_inodes\":%s", amount(files[1], 1), amount(files[3], 1)
        print "}]}"
    }'
}

hung_disk() {
    path=$disk awk -v t="$(now)" "$json"'
    BEGIN { printf "{\"v\":1,\"t\":%s,\"k\":\"disk\",\"d\":[{\"path\":%s,\"state\":\"hung\"}]}\n", t, text(ENVIRON["path"]) }'
}

fast="index temperature.gpu temperature.memory memory.used utilization.gpu power.draw clocks.sm
      clocks_throttle_reasons.active"
slow="index uuid name memory.total enforced.power.limit temperature.gpu.tlimit mig.mode.current
      ecc.errors.uncorrected.volatile.total ecc.errors.corrected.volatile.total remapped_rows.pending
      remapped_rows.failure"

# The fields that this driver knows: one unknown field makes the whole call fail.
known_fields() {
    list=
    for field in $1; do
        case $2 in *"\"$field\""* | "") list="$list${list:+,}$field" ;; esac
    done
    printf %s "$list"
}

smi() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits $2 $3 2>&1; }

# All GPUs in one call. If that fails, each GPU by itself: one lost GPU can make the call fail for all.
rows() {
    answer=$(smi "$1")
    # 14: the infoROM is corrupted, but the numbers are valid.
    case $? in 0 | 14) printf '%s\n' "$answer"; return ;; esac
    count=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ "$count" -gt 0 ] || { printf 'failed, %s\n' "$answer"; return; }
    gpu=0
    while [ "$gpu" -lt "$count" ]; do
        answer=$(smi "$1" -i $gpu)
        case $answer in "$gpu, "*) ;; *) answer="$gpu, !$(printf %s "$answer" | tr '\n' ' ')" ;; esac
        printf '%s\n' "$answer"
        gpu=$((gpu + 1))
    done
}

sample_gpus() {
    rows "$2" | awk -F', *' -v kind="$1" -v fields="$2" -v t="$(now)" -v expected="$expected" "$json"'
    function cell(name) { return (name in at) && at[name] <= NF ? $(at[name]) : "" }
    function count(name) { return number(cell(name)) }
    function whole(name,   value) { value = count(name); return value == "null" ? value : sprintf("%.0f", value) }
    function flag(name,   value) { value = cell(name)
        return value ~ /^(Enabled|Yes|1)$/ ? "true" : value ~ /^(Disabled|No|0)$/ ? "false" : "null" }
    function word(name) { return cell(name) ~ /^(|\[.*\]|N\/A)$/ ? "null" : plain(cell(name)) }
    function bits(hex,   i, value) { if (hex !~ /^0x[0-9A-Fa-f]+$/) return "null"
        for (i = 3; i <= length(hex); i++) value = value * 16 + index("0123456789abcdef", tolower(substr(hex, i, 1))) - 1
        return sprintf("%.0f", value) }
    function member(name, value) { return ",\"" name "\":" value }
    function trouble() {
        if ($2 ~ /^!/) return substr($0, index($0, "!") + 1)
        if (!match($0, /(\[[^]]*(lost|reset|Error)[^]]*\]|ERR!)/)) return ""
        found = substr($0, RSTART, RLENGTH); gsub(/[][]/, "", found)
        return found
    }
    BEGIN { n = split(fields, names, ","); for (i = 1; i <= n; i++) at[names[i]] = i }
    /^failed, / { sub(/^failed, /, ""); failed = failed (failed == "" ? "" : " ") $0; next }
    $1 !~ /^[0-9]+$/ { if (failed != "") failed = failed " " $0; next }
    kind == "gpu" {
        why = trouble()
        list = list (list == "" ? "" : ",") sprintf("[%d,%s,%s,%s,%s,%s,%s,%s,%s,%s]", $1, why == "" ? "null" : plain(why),
            why ~ /lost/ ? "true" : "false", whole("temperature.gpu"), whole("temperature.memory"), whole("memory.used"),
            whole("utilization.gpu"), count("power.draw"), whole("clocks.sm"), bits(cell("clocks_throttle_reasons.active")))
    }
    kind == "gpus" {
        list = list (list == "" ? "" : ",") "{\"index\":" $1 member("uuid", word("uuid")) member("name", word("name")) \
            member("memory_total_mib", whole("memory.total")) member("power_limit_w", count("enforced.power.limit")) \
            member("temperature_margin_c", whole("temperature.gpu.tlimit")) member("mig", flag("mig.mode.current")) \
            member("ecc_uncorrected", whole("ecc.errors.uncorrected.volatile.total")) \
            member("ecc_corrected", whole("ecc.errors.corrected.volatile.total")) \
            member("remap_pending", flag("remapped_rows.pending")) \
            member("remap_failed", flag("remapped_rows.failure")) "}"
    }
    END {
        if (kind == "gpu" || failed != "") printf "{\"v\":1,\"t\":%s,\"k\":\"trouble\",\"part\":\"gpu\",\"text\":%s}\n", t,
            failed == "" ? "null" : plain(substr(failed, 1, 400))
        if (failed != "") exit
        printf "{\"v\":1,\"t\":%s,\"k\":\"%s\",\"g\":[%s]%s}\n", t, kind, list, kind == "gpu" ? "" : ",\"expected\":" expected
    }'
}

hung_gpus() { reading trouble '"part":"gpu","text":"nvidia-smi does not answer"'; }

# The host's NVIDIA GPUs on the PCI bus, without those of virtual machines. 0 in a container or a job's cgroup, which may
# hide GPUs.
pci_gpus() {
    found=0
    for gpu in "${TRAINMON_PCI:-/sys/bus/pci/devices}"/*; do
        { read -r vendor <"$gpu/vendor" && read -r class <"$gpu/class"; } 2>/dev/null || continue
        case $vendor,$class in 0x10de,0x0300* | 0x10de,0x0302*) ;; *) continue ;; esac
        case $(readlink "$gpu/driver" 2>/dev/null) in *vfio* | *pci-stub | *pciback) continue ;; esac
        [ -L "$gpu/physfn" ] || found=$((found + 1))
    done
    grep -qE 'slurm|docker|kubepods|containerd|podman|lxc' /proc/self/cgroup 2>/dev/null && found=0
    echo $found
}

watch_host() {
    while lives "$main"; do
        emit sample_host
        sleep "$period"
    done
    # shellcheck disable=SC2086
    end $jobs # those that are older: the lease, which waits for its input
}

watch_disk() {
    disk=$1
    while lives "$main"; do
        with_limit "$patience" hung_disk sample_disk "$disk"
        sleep 10
    done
}

watch_gpus() {
    help=$(nvidia-smi --help-query-gpu 2>/dev/null)
    fast=$(known_fields "$fast" "$help") slow=$(known_fields "$slow" "$help")
    [ -d /proc/driver/nvidia/gpus ] && driven=$(ls /proc/driver/nvidia/gpus | wc -l) || driven=0
    [ "$driven" -le "$expected" ] || expected=$driven
    [ "$expected" -gt 0 ] || expected=null
    ticks=0
    while lives "$main"; do
        [ $((ticks % (30 / period + 1))) -eq 0 ] && with_limit $((4 * patience)) hung_gpus sample_gpus gpus "$slow"
        with_limit $((4 * patience)) hung_gpus sample_gpus gpu "$fast"
        ticks=$((ticks + 1))
        sleep "$period"
    done
}

renew_lease() {
    while [ "$(dd bs=4096 count=1 2>/dev/null | wc -c)" -gt 0 ]; do
        lives "$main" || exit
        kill -USR1 $$
    done
    ! lives "$main" || kill -TERM $$
}

# The last line must not block either: the client may have stopped reading.
finish() {
    trap '' USR1 TERM HUP INT
    # shellcheck disable=SC2086
    (end $jobs) & # not here: when we are killed, what it has stopped must not stay so
    wait $!
    reading bye "\"why\":\"$1\"" &
    identify $!
    bye=$id
    (sleep 1; end "$bye") 2>/dev/null &
    identify $!
    guard=$id
    wait "${bye%:*}" 2>/dev/null
    (end "$guard") &
    wait $!
    exit 0
}

add_job() { identify $! && jobs="$jobs $id"; }
read_uptime() { read -r up _ </proc/uptime && up=${up%%.*}; }

jobs=
identify $$
main=$id
probe=sh
command -v nvidia-smi >/dev/null 2>&1 && probe=nvidia-smi
trap 'beat=1' USR1
trap 'finish "the client closed the connection"' TERM
trap 'finish "ended by a signal"' HUP INT
hello
exec 3<&0 </dev/null
renew_lease <&3 3<&- &
add_job
exec 3<&-
watch_host &
add_job
expected=$(pci_gpus)
[ "$expected" -eq 0 ] || emit reading gpus "\"g\":[],\"expected\":$expected"
[ $probe = sh ] || { watch_gpus & add_job; }
for path in "$@"; do
    watch_disk "$path" &
    add_job
done

read_uptime
last=$up
while :; do
    sleep 2 &
    identify $!
    nap=$id
    while lives "$nap"; do wait "${nap%:*}" 2>/dev/null; done
    read_uptime
    [ -z "$beat" ] || last=$up beat=
    [ $((up - last)) -lt "$lease" ] || finish "the client has been silent for ${lease}s"
done
