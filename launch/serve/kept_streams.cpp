#include "launch/serve/kept_streams.hpp"

#include <fmt/core.h>
#include <random>
#include <utility>

namespace paceline::serve {
namespace {

constexpr std::size_t kEntryBytes = 1024;  // beside the answer

std::size_t bytes_of(const KeptStream& stream) {
    return kEntryBytes + stream.answer->bytes();
}

}  // namespace

void KeptStreams::add(const std::string& id, KeptStream stream, Clock::time_point now) {
    streams_[id] = {.stream = std::make_shared<const KeptStream>(std::move(stream)),
                    .unread_since = now};
}

std::shared_ptr<const KeptStream> KeptStreams::find(const std::string& id,
                                                    const std::string& owner) const {
    const auto at = streams_.find(id);
    if (at == streams_.end() || at->second.stream->owner != owner) return nullptr;
    return at->second.stream;
}

void KeptStreams::begin_reading(const std::string& id) {
    const auto at = streams_.find(id);
    if (at != streams_.end()) ++at->second.readers;
}

void KeptStreams::end_reading(const std::string& id, Clock::time_point now) {
    const auto at = streams_.find(id);
    if (at == streams_.end()) return;
    if (--at->second.readers == 0) at->second.unread_since = now;
    sweep(now);
}

void KeptStreams::sweep(Clock::time_point now) {
    for (auto at = streams_.begin(); at != streams_.end();) {
        const auto each = at++;
        const Entry& entry = each->second;
        if (entry.readers == 0 && now - entry.unread_since >= limits_.keep) forget(each);
    }
    forget_surplus();
}

void KeptStreams::forget_surplus() {
    while (true) {
        std::size_t count = 0;
        std::size_t bytes = 0;
        auto oldest = streams_.end();
        for (auto at = streams_.begin(); at != streams_.end(); ++at) {
            if (at->second.readers > 0) continue;
            ++count;
            bytes += bytes_of(*at->second.stream);
            if (oldest == streams_.end() || at->second.unread_since < oldest->second.unread_since)
                oldest = at;
        }
        if (count <= limits_.streams && bytes <= limits_.bytes) return;
        forget(oldest);
    }
}

void KeptStreams::forget(Entries::iterator at) {
    const std::shared_ptr<const KeptStream> stream = at->second.stream;
    streams_.erase(at);
    if (!stream->answer->over() && stream->cancel) stream->cancel();
}

std::string random_stream_id() {
    std::random_device device;
    return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

}  // namespace paceline::serve
