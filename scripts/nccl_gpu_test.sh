#!/usr/bin/env bash
# nccl_gpu_test.sh: tests scripts/nccl-gpu without a GPU, and its comparison with stand-ins for nvidia-smi and plugfest.
#
# Exit code: 0 all cases passed, 1 a case failed.
source "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/testing.sh"
make_scratch
script=$here/nccl-gpu

# fake NAME BODY: makes a program of that name.
fake() { printf '#!/usr/bin/env bash\n%s\n' "$2" >"$scratch/$1" && chmod +x "$scratch/$1"; }
export PATH="$scratch:$PATH" PLUGFEST="$scratch/plugfest"

gives 0 'Exit code: 0 both runs passed' "$script" --help
gives 2 'nccl-gpu: unknown option "--gpu": see nccl-gpu --help' "$script" --gpu
gives 2 'nccl-gpu: ./nothing: no such program' "$script" ./nothing
fake nvidia-smi 'echo "NVIDIA-SMI has failed"; exit 9'
gives 2 'nccl-gpu: no GPU: nvidia-smi -L lists none' "$script" /bin/true
fake nvidia-smi 'echo "GPU 0: Example (UUID: x)"'
fake plugfest '[ "$*" != "nccl exec --topology pair --gpu -- /bin/true" ] || echo "[1] b"; echo "[0] a"
[[ "$*" == *--gpu* ]] || echo "[1] b"'
gives 0 'nccl-gpu: 2 lines of output are the same on GPU 0: Example' "$script" /bin/true
fake plugfest '[[ "$*" == *"--plugin x"* ]] && [[ "$*" == *--gpu* ]] && echo "[1] c" || echo "[1] b"'
gives 1 '^> \[1\] c' "$script" --plugin x /bin/true
fake plugfest '[[ "$*" != *--gpu* ]]'
gives 1 'nccl-gpu: the run gpu ended with exit code 1' "$script" /bin/true
fake plugfest 'exit 2'
gives 2 'nccl-gpu: the run emulated ended with exit code 2' "$script" /bin/true
exit "$failed"
