#include "plugins/mesh/relay/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace mesh {
namespace {

// Bytes that one call of poll reads at most, so that it returns while a fast peer sends.
constexpr std::size_t kMostBytesPerPoll = std::size_t{4} << 20;

}  // namespace

void Stream::start(Socket socket, std::vector<std::uint8_t> received, FrameReader::MayWrite may_write) {
  socket_ = std::move(socket);
  reader_.start(std::move(received));
  may_write_ = std::move(may_write);
}

int Stream::post_send(const ibv_send_wr* first) {
  for (const ibv_send_wr* each = first; each != nullptr; each = each->next) {
    FrameWriter::Work work;
    work.id = each->wr_id;
    work.signaled = (each->send_flags & IBV_SEND_SIGNALED) != 0;
    switch (each->opcode) {
      case IBV_WR_SEND:
        work.header.kind = FrameHeader::kSend;
        break;
      case IBV_WR_SEND_WITH_IMM:
        work.header.kind = FrameHeader::kSendWithValue;
        break;
      case IBV_WR_RDMA_WRITE:
        work.header.kind = FrameHeader::kWrite;
        break;
      case IBV_WR_RDMA_WRITE_WITH_IMM:
        work.header.kind = FrameHeader::kWriteWithValue;
        break;
      default:
        return EINVAL;
    }
    work.opcode = work.header.is_send() ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
    if (stopped_) {
      complete(work.id, IBV_WC_WR_FLUSH_ERR, work.opcode);
      continue;
    }
    work.header.value = each->imm_data;
    work.header.address = each->wr.rdma.remote_addr;
    work.header.key = each->wr.rdma.rkey;
    if (each->num_sge > 0) {
      work.header.length = each->sg_list->length;
      work.data = reinterpret_cast<const std::byte*>(each->sg_list->addr);
    }
    if ((each->send_flags & IBV_SEND_INLINE) != 0) {
      work.copy.assign(work.data, work.data + work.header.length);
      work.data = work.copy.data();
    }
    writer_.post(std::move(work));
  }
  flush();
  return 0;
}

int Stream::post_receive(const ibv_recv_wr* first) {
  for (const ibv_recv_wr* each = first; each != nullptr; each = each->next) {
    if (stopped_) {
      complete(each->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
    } else if (each->num_sge > 0) {
      reader_.post({each->wr_id, reinterpret_cast<std::byte*>(each->sg_list->addr), each->sg_list->length});
    } else {
      reader_.post({.id = each->wr_id});
    }
  }
  return 0;
}

int Stream::poll(std::span<ibv_wc> completions) {
  if (!stopped_) {
    read();
    flush();
  }
  std::size_t taken = 0;
  while (taken < completions.size() && !completions_.empty()) {
    completions[taken++] = completions_.front();
    completions_.pop_front();
  }
  return static_cast<int>(taken);
}

void Stream::stop() {
  if (std::exchange(stopped_, true)) return;
  for (const FrameWriter::Work& each : writer_.work()) complete(each.id, IBV_WC_WR_FLUSH_ERR, each.opcode);
  for (const FrameReader::Receive& each : reader_.receives()) complete(each.id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
}

void Stream::say_goodbye(std::uint64_t messages_received) {
  if (!socket_) return;
  writer_.say_goodbye(socket_, messages_received);
  shutdown(socket_.fd(), SHUT_WR);
}

void Stream::flush() {
  if (socket_ && !stopped_ && !ended_) writer_.flush(socket_);
}

void Stream::read() {
  std::size_t budget = kMostBytesPerPoll;
  while (socket_ && !stopped_ && !ended_ && budget > 0) {
    const FrameReader::Progress progress = reader_.read(socket_, may_write_);
    if (!progress.failure.empty()) return end(progress.failure);
    if (!progress.complete) return;
    budget -= std::min(budget, progress.bytes);
    end_frame(reader_.header());
  }
}

void Stream::end_frame(const FrameHeader& header) {
  if (header.kind == FrameHeader::kGoodbye) {
    goodbye_ = header.address;
    return end("it closed the connection");
  }
  if (header.kind == FrameHeader::kDone) {
    for (std::uint32_t i = 0; i < header.count; ++i) {
      const std::optional<FrameWriter::Work> done = writer_.take_done();
      if (!done) return end("it reported work that was not sent");
      if (done->signaled) complete(done->id, IBV_WC_SUCCESS, done->opcode);
    }
    return;
  }
  writer_.report_one();
  if (header.kind == FrameHeader::kWrite) return;
  complete(reader_.take_receive().id, IBV_WC_SUCCESS,
           header.kind == FrameHeader::kWriteWithValue ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
           static_cast<std::uint32_t>(header.length), header.value, header.kind != FrameHeader::kSend);
}

void Stream::complete(std::uint64_t id, ibv_wc_status status, ibv_wc_opcode opcode, std::uint32_t bytes,
                      std::uint32_t value, bool has_value) {
  ibv_wc completion = {};
  completion.wr_id = id;
  completion.status = status;
  completion.opcode = opcode;
  completion.byte_len = bytes;
  completion.imm_data = value;
  completion.wc_flags = has_value ? IBV_WC_WITH_IMM : 0;
  completions_.push_back(completion);
}

void Stream::end(const std::string& reason) {
  ended_ = true;
  end_reason_ = reason;
}

}  // namespace mesh
