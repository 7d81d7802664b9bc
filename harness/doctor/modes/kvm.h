// Whether KVM gives a virtual machine: a processor of it executes one instruction.
#pragma once

#include <string>

#include "harness/doctor/trials.h"

namespace plugfest::doctor {

/// Makes a virtual machine of one page whose processor halts. Some hosts have /dev/kvm and hang here, so it wants a
/// deadline (in_a_child). Returns what read_kvm_answer takes.
std::string run_virtual_processor();
KvmTrial read_kvm_answer(const std::string& answer);

}  // namespace plugfest::doctor
