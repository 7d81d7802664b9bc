// Tells who accesses device memory with the CPU.
#pragma once

namespace plugfest::nccl {

/// First words of the line about an access to device memory by the CPU.
inline constexpr const char* kFault = "plugfest-nccl fault: ";
/// Exit code of a process that did so.
inline constexpr int kFaultCode = 1;

namespace cuda {

/// From now on an access to device memory without a mapping for the CPU ends the process with a line that names the
/// function and the address. Other faults go to the handler of before. Call it once.
void report_access_to_device_memory();

}  // namespace cuda
}  // namespace plugfest::nccl
