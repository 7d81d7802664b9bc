// Tries KVM: a virtual processor executes one instruction.
#pragma once

#include <string>

#include "harness/doctor/trials.h"

namespace plugfest::doctor {

/// Runs a virtual machine with one page of memory whose processor executes HLT. Returns the input of read_kvm_answer().
/// On some machines with /dev/kvm it hangs: call it in run_in_child().
std::string run_virtual_processor();
KvmTrial read_kvm_answer(const std::string& answer);

}  // namespace plugfest::doctor
