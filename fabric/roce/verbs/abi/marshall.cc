// Converts structures of the kernel's connection manager to structures of libibverbs and back, for librdmacm. Source:
// infiniband/marshall.h of rdma-core, which not every distribution installs.
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstdint>
#include <cstring>

extern "C" {

void ibv_copy_ah_attr_from_kern(ibv_ah_attr* out, const ib_uverbs_ah_attr* in) noexcept {
  std::memcpy(out->grh.dgid.raw, in->grh.dgid, sizeof(in->grh.dgid));
  out->grh.flow_label = in->grh.flow_label;
  out->grh.sgid_index = in->grh.sgid_index;
  out->grh.hop_limit = in->grh.hop_limit;
  out->grh.traffic_class = in->grh.traffic_class;
  out->dlid = in->dlid;
  out->sl = in->sl;
  out->src_path_bits = in->src_path_bits;
  out->static_rate = in->static_rate;
  out->is_global = in->is_global;
  out->port_num = in->port_num;
}

void ibv_copy_qp_attr_from_kern(ibv_qp_attr* out, const ib_uverbs_qp_attr* in) noexcept {
  out->qp_state = static_cast<ibv_qp_state>(in->qp_state);
  out->cur_qp_state = static_cast<ibv_qp_state>(in->cur_qp_state);
  out->path_mtu = static_cast<ibv_mtu>(in->path_mtu);
  out->path_mig_state = static_cast<ibv_mig_state>(in->path_mig_state);
  out->qkey = in->qkey;
  out->rq_psn = in->rq_psn;
  out->sq_psn = in->sq_psn;
  out->dest_qp_num = in->dest_qp_num;
  out->qp_access_flags = in->qp_access_flags;
  out->cap = {.max_send_wr = in->max_send_wr,
              .max_recv_wr = in->max_recv_wr,
              .max_send_sge = in->max_send_sge,
              .max_recv_sge = in->max_recv_sge,
              .max_inline_data = in->max_inline_data};
  ibv_copy_ah_attr_from_kern(&out->ah_attr, &in->ah_attr);
  ibv_copy_ah_attr_from_kern(&out->alt_ah_attr, &in->alt_ah_attr);
  out->pkey_index = in->pkey_index;
  out->alt_pkey_index = in->alt_pkey_index;
  out->en_sqd_async_notify = in->en_sqd_async_notify;
  out->sq_draining = in->sq_draining;
  out->max_rd_atomic = in->max_rd_atomic;
  out->max_dest_rd_atomic = in->max_dest_rd_atomic;
  out->min_rnr_timer = in->min_rnr_timer;
  out->port_num = in->port_num;
  out->timeout = in->timeout;
  out->retry_cnt = in->retry_cnt;
  out->rnr_retry = in->rnr_retry;
  out->alt_port_num = in->alt_port_num;
  out->alt_timeout = in->alt_timeout;
}

void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* out, const ib_user_path_rec* in) noexcept {
  std::memcpy(out->dgid.raw, in->dgid, sizeof(in->dgid));
  std::memcpy(out->sgid.raw, in->sgid, sizeof(in->sgid));
  out->dlid = in->dlid;
  out->slid = in->slid;
  out->raw_traffic = static_cast<int>(in->raw_traffic);
  out->flow_label = in->flow_label;
  out->hop_limit = in->hop_limit;
  out->traffic_class = in->traffic_class;
  out->reversible = static_cast<int>(in->reversible);
  out->numb_path = in->numb_path;
  out->pkey = in->pkey;
  out->sl = in->sl;
  out->mtu_selector = in->mtu_selector;
  out->mtu = static_cast<std::uint8_t>(in->mtu);
  out->rate_selector = in->rate_selector;
  out->rate = in->rate;
  out->packet_life_time_selector = in->packet_life_time_selector;
  out->packet_life_time = in->packet_life_time;
  out->preference = in->preference;
}

void ibv_copy_path_rec_to_kern(ib_user_path_rec* out, const ibv_sa_path_rec* in) noexcept {
  std::memcpy(out->dgid, in->dgid.raw, sizeof(out->dgid));
  std::memcpy(out->sgid, in->sgid.raw, sizeof(out->sgid));
  out->dlid = in->dlid;
  out->slid = in->slid;
  out->raw_traffic = static_cast<std::uint32_t>(in->raw_traffic);
  out->flow_label = in->flow_label;
  out->hop_limit = in->hop_limit;
  out->traffic_class = in->traffic_class;
  out->reversible = static_cast<std::uint32_t>(in->reversible);
  out->numb_path = in->numb_path;
  out->pkey = in->pkey;
  out->sl = in->sl;
  out->mtu_selector = in->mtu_selector;
  out->mtu = in->mtu;
  out->rate_selector = in->rate_selector;
  out->rate = in->rate;
  out->packet_life_time_selector = in->packet_life_time_selector;
  out->packet_life_time = in->packet_life_time;
  out->preference = in->preference;
}

}  // extern "C"
