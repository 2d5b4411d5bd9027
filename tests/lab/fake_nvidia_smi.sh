#!/bin/sh
# A stand-in for nvidia-smi: two GPUs, and the failures of the file named by FAKE_SMI (a word; absent: all is well).
story=$(cat "$FAKE_SMI" 2>/dev/null)
known="index uuid name memory.total enforced.power.limit temperature.gpu.tlimit mig.mode.current
ecc.errors.uncorrected.volatile.total ecc.errors.corrected.volatile.total remapped_rows.pending remapped_rows.failure
temperature.gpu memory.used utilization.gpu power.draw clocks.sm clocks_throttle_reasons.active"
[ "$story" = old-driver ] || known="$known temperature.memory"
only= fields=
while [ $# -gt 0 ]; do
    case $1 in
        --help-query-gpu) for name in $known; do echo "\"$name\""; echo "What it is."; done; exit 0 ;;
        --query-gpu=*) fields=${1#*=} ;;
        -L) [ "$story" != mismatch ] || exit 18; echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)"; echo "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-1)"; exit 0 ;;
        -i) only=$2; shift ;;
    esac
    shift
done
case $story in
    hung) while :; do sleep 1; done ;;
    hung-tree) for child in $(seq 100); do sleep 1000 & done; wait ;;
    mismatch) echo "Failed to initialize NVML: Driver/library version mismatch"; echo "NVML library version: 580.126"; exit 18 ;;
    handle) [ "$only" = 0 ] || { echo "Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error"; exit 255; } ;;
    inforom) code=14 ;;
esac
for gpu in 0 1; do
    [ "${only:-$gpu}" = $gpu ] || continue
    row=
    for field in $(echo "$fields" | tr , ' '); do
        case " $(echo $known) " in
            *" $field "*) ;;
            *) echo "Field \"$field\" is not a valid field to query."; exit 2 ;;
        esac
        case $field in
            index) cell=$gpu ;;
            uuid) cell=GPU-$gpu ;;
            name) cell="NVIDIA H100 80GB HBM3" ;;
            memory.total) cell=81559 ;;
            enforced.power.limit) cell=700.00 ;;
            temperature.gpu.tlimit) cell=46 ;;
            mig.mode.current) cell=Disabled ;;
            ecc.errors.*) cell=0 ;;
            remapped_rows.pending) cell=No ;;
            remapped_rows.failure) cell="[N/A]" ;;
            temperature.gpu) cell=41 ;;
            temperature.memory) cell=48 ;;
            memory.used) cell=19818 ;;
            utilization.gpu) cell="[N/A]" ;;
            power.draw) cell=631.95 ;;
            clocks.sm) cell=1980 ;;
            clocks_throttle_reasons.active) cell=0x0000000000000084 ;;
        esac
        [ "$story" = lost ] && [ $gpu = 1 ] && [ $field != index ] && cell="[GPU is lost]"
        row="$row${row:+, }$cell"
    done
    echo "$row"
done
exit ${code:-0}
