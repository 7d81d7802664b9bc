#include "fabric/sharp_coll/settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "fabric/reduction/control_link.h"

namespace plugfest::sharp_coll {
namespace {

void read_number(const char* text, int& value) {
  if (text == nullptr) return;
  const std::string_view word = text;
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc() && end == word.data() + word.size() && number >= 0) value = number;
}

void read_flag(const char* text, bool& value) {
  if (text == nullptr) return;
  const std::string_view word = text;
  if (word == "1" || word == "y" || word == "yes" || word == "on" || word == "true") value = true;
  if (word == "0" || word == "n" || word == "no" || word == "off" || word == "false") value = false;
}

void read_text(const char* text, std::string& value) {
  if (text != nullptr) value = text;
}

}  // namespace

Settings Settings::from(const std::function<const char*(const char*)>& lookup) {
  Settings settings;
  read_number(lookup("SHARP_COLL_LOG_LEVEL"), settings.log_level);
  read_flag(lookup("SHARP_COLL_ENABLE_SAT"), settings.enable_sat);
  read_flag(lookup("SHARP_COLL_LOCK_ON_COMM_INIT"), settings.lock_on_comm_init);
  read_number(lookup("SHARP_COLL_JOB_QUOTA_OSTS"), settings.quota_osts);
  read_number(lookup("SHARP_COLL_STATS_DUMP_MODE"), settings.stats_dump_mode);
  read_text(lookup(reduction::kManagerVariable), settings.manager);
  return settings;
}

std::string Settings::text() const {
  return "SHARP_COLL_LOG_LEVEL=" + std::to_string(log_level) +
         "\nSHARP_COLL_ENABLE_SAT=" + std::to_string(static_cast<int>(enable_sat)) +
         "\nSHARP_COLL_LOCK_ON_COMM_INIT=" + std::to_string(static_cast<int>(lock_on_comm_init)) +
         "\nSHARP_COLL_JOB_QUOTA_OSTS=" + std::to_string(quota_osts) +
         "\nSHARP_COLL_STATS_DUMP_MODE=" + std::to_string(stats_dump_mode) + "\n" + reduction::kManagerVariable + "=" +
         manager + "\n";
}

Settings settings_of_environment() {
  return Settings::from([](const char* name) { return std::getenv(name); });
}

}  // namespace plugfest::sharp_coll
