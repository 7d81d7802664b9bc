// Forwards to the engine.
#include "fabric/roce/nic.h"

#include "fabric/roce/engine/nic_engine.h"

namespace plugfest::roce {

Nic::Nic(NicSettings settings) : engine_(std::make_unique<NicEngine>(std::move(settings))) {}
Nic::~Nic() = default;
void Nic::set_addresses(std::vector<Address> in_gid_order) { engine_->set_addresses(std::move(in_gid_order)); }
void Nic::set_mtu(int mtu_bytes) { engine_->set_mtu(mtu_bytes); }
Counters Nic::counters() const { return engine_->counters(); }
NicContext Nic::context() { return engine_->context(); }
bool Nic::in_child() const { return engine_->in_child(); }

}  // namespace plugfest::roce
