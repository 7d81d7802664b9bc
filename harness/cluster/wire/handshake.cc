#include "harness/cluster/wire/handshake.h"

#include <algorithm>
#include <cstring>

namespace plugfest::cluster {
namespace {

constexpr std::string_view kMagic = "pfcert03";
constexpr std::size_t kNonce = sizeof(Digest);
constexpr std::size_t kProof = sizeof(Digest);
static_assert(Handshake::kMostBytes == kMagic.size() + kNonce + kProof);

void append(std::string& text, Bytes bytes) { text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size()); }

}  // namespace

std::string Handshake::greeting() const {
  std::string text;
  if (side_ == Side::kAgent) return text;
  append(text, bytes_of(kMagic));
  append(text, own_nonce_);
  return text;
}

bool Handshake::take(std::string& inbox, std::string& outbox) {
  const std::size_t expected = side_ == Side::kController ? kMostBytes : answered_ ? kProof : kMagic.size() + kNonce;
  // A stranger is refused at its first wrong byte.
  const std::size_t magic = answered_ ? 0 : std::min(inbox.size(), kMagic.size());
  if (inbox.compare(0, magic, kMagic, 0, magic) != 0) return refuse("the peer is no plugfest of this version");
  if (inbox.size() < expected) return false;
  if (!answered_) std::memcpy(peer_nonce_.data(), inbox.data() + kMagic.size(), kNonce);
  const std::string_view proof = std::string_view(inbox).substr(expected - kProof, kProof);
  if (side_ == Side::kController) {
    if (!accept(proof, "agent")) return false;
    append(outbox, prove("controller"));
  } else if (!answered_) {
    answered_ = true;
    append(outbox, bytes_of(kMagic));
    append(outbox, own_nonce_);
    append(outbox, prove("agent"));
  } else if (!accept(proof, "controller")) {
    return false;
  }
  inbox.erase(0, expected);
  return true;
}

Digest Handshake::prove(std::string_view who) const {
  const bool controls = side_ == Side::kController;
  return mac(token_, {bytes_of(who), controls ? own_nonce_ : peer_nonce_, controls ? peer_nonce_ : own_nonce_});
}

bool Handshake::refuse(const char* why) {
  failure_ = why;
  return false;
}

bool Handshake::accept(std::string_view proof, std::string_view who) {
  if (!equal(bytes_of(proof), prove(who))) return refuse("the peer does not know the token");
  const bool controls = side_ == Side::kController;
  send_key_ = prove(controls ? "to agent" : "to controller");
  receive_key_ = prove(controls ? "to controller" : "to agent");
  return complete_ = true;
}

}  // namespace plugfest::cluster
