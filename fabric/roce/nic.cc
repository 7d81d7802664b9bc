// The public face of a NIC.
#include "fabric/roce/nic.h"

#include "fabric/roce/nic_engine.h"

namespace plugfest::roce {

Nic::Nic(NicSettings settings) : engine_(std::make_unique<NicEngine>(std::move(settings))) {}
Nic::~Nic() = default;
Counters Nic::counters() const { return engine_->counters_now(); }

}  // namespace plugfest::roce
