// What a grammar helper and its parent say to each other, over a stream socket:
//
//     parent                                   helper
//       | ---- HelperTask: limits, vocabulary --> |   once
//       | ---- GrammarSpec ---------------------> |
//       | <--- compiled bytes, or an error ------ |   for each
//
// A frame is its length (4 bytes, of this machine) and as many bytes. Both ends are the same
// program; what is read is checked all the same, since a helper that a grammar has broken may write
// anything. Functions of values and descriptors; each descriptor on one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ipc/base/result.hpp"
#include "model/grammar/grammar.hpp"

namespace paceline {

/// Of one compilation.
struct GrammarLimits {
    std::chrono::milliseconds processor_time{5000};
    std::uint64_t memory_bytes = std::uint64_t{1}
                                 << 30;  // beside what the helper has when it starts
};

struct HelperTask {
    GrammarLimits limits = {};
    GrammarVocabulary vocabulary = {};
};

[[nodiscard]] std::string encode_task(const HelperTask& task);
[[nodiscard]] std::string encode_spec(const GrammarSpec& spec);
[[nodiscard]] std::string encode_reply(const Result<CompiledGrammarPtr>& reply);
/// Errors: Protocol.
[[nodiscard]] Result<HelperTask> decode_task(std::string_view frame);
[[nodiscard]] Result<GrammarSpec> decode_spec(std::string_view frame);
/// The error is that of the helper, or Protocol. `hash`: of what was asked.
[[nodiscard]] Result<CompiledGrammarPtr> decode_reply(std::string_view frame,
                                                      const std::string& hash);

/// False: the other end is gone.
[[nodiscard]] bool write_frame(int fd, std::string_view frame);
/// Nothing: the other end is gone, the frame is longer than `bytes_max`, or `limit` is over.
[[nodiscard]] std::optional<std::string> read_frame(
    int fd, std::size_t bytes_max, std::optional<std::chrono::milliseconds> limit = {});

}  // namespace paceline
