// One function per NIC kind, which creates it. Each is defined in the file of its kind.
#pragma once

#include <memory>

#include "harness/bed/nic_kind.h"

namespace plugfest::bed {

std::unique_ptr<NicKind> make_roce(const NicOptions& options);
std::unique_ptr<NicKind> make_loopback(const NicOptions& options);
std::unique_ptr<NicKind> make_rxe(const NicOptions& options);
std::unique_ptr<NicKind> make_vm(const NicOptions& options);
std::unique_ptr<NicKind> make_system(const NicOptions& options);

}  // namespace plugfest::bed
