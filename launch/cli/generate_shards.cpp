#include "launch/cli/generate_shards.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <system_error>
#include <utility>

#include "ipc/base/check.hpp"
#include "launch/base/print.hpp"
#include "model/weights/safetensors_file.hpp"
#include "model/weights/safetensors_writer.hpp"

namespace paceline {
namespace {

using Metadata = std::map<std::string, std::string>;
using Type = SafetensorsType;

/// 64 bits of FNV-1a over the prompts of a shard and the indices of their answers.
std::string digest_of(const std::vector<AnswerTask>& tasks) {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    const auto mix = [&hash](std::uint64_t number) {
        for (unsigned shift = 0; shift < 64; shift += 8)
            hash = (hash ^ ((number >> shift) & 0xFFU)) * 0x100000001B3ULL;
    };
    for (const AnswerTask& task : tasks) {
        mix(static_cast<std::uint64_t>(task.index));
        mix(task.tokens.size());
        for (const TokenId token : task.tokens) mix(static_cast<std::uint64_t>(token));
    }
    return print("%016llx", static_cast<unsigned long long>(hash));
}

/// Whether a shard says of itself what this run would say of it.
Status compare(const std::string& path, const Metadata& there, const Metadata& wanted) {
    for (const auto& [key, value] : wanted) {
        const auto found = there.find(key);
        const std::string other = found == there.end() ? "nothing" : found->second;
        if (other == value) continue;
        std::string what = path;
        what.append(" was made with ").append(key).append(" = ").append(other);
        what.append(", this run has ")
            .append(value)
            .append("; use another folder, or remove the file");
        return Error{Errc::BadArgument, what};
    }
    return {};
}

std::vector<SafetensorsEntry> entries_of(const ShardLayout& layout,
                                         std::int64_t answers,
                                         std::int64_t tokens) {
    std::vector<SafetensorsEntry> entries{
        {"begins", Type::I64, {answers + 1}},    {"tokens", Type::I32, {tokens}},
        {"prompt_tokens", Type::I32, {answers}}, {"prompt_index", Type::I32, {answers}},
        {"sample", Type::I32, {answers}},        {"finish", Type::I32, {answers}}};
    if (layout.top > 0) {
        entries.push_back({"top_ids", Type::I32, {tokens, layout.top}});
        entries.push_back({"top_logprob", Type::F16, {tokens, layout.top}});
    }
    for (const int layer : layout.hidden)
        entries.push_back({fmt::format("hidden.{}", layer), Type::F16, {tokens, layout.dim}});
    return entries;
}

/// One number of each answer.
template <class Get>
Status append_column(SafetensorsWriter& writer,
                     const std::vector<TrainingSample>& answers,
                     Get get) {
    std::vector<std::int32_t> column;
    column.reserve(answers.size());
    for (const TrainingSample& answer : answers) column.push_back(get(answer));
    return writer.append(column);
}

/// A vector of each answer, one after the other.
template <class Get>
Status append_all(SafetensorsWriter& writer, const std::vector<TrainingSample>& answers, Get get) {
    for (const TrainingSample& answer : answers) {
        if (Status s = writer.append(get(answer)); !s) return s;
    }
    return {};
}

std::vector<std::int64_t> begins_of(const std::vector<TrainingSample>& answers) {
    std::vector<std::int64_t> begins{0};
    for (const TrainingSample& answer : answers)
        begins.push_back(begins.back() + static_cast<std::int64_t>(answer.tokens.size()));
    return begins;
}

Status append_numbers(SafetensorsWriter& writer, const std::vector<TrainingSample>& answers) {
    using Answer = const TrainingSample&;
    if (Status s = writer.append(begins_of(answers)); !s) return s;
    if (Status s = append_all(
            writer, answers, [](Answer a) -> auto& { return a.tokens; });
        !s)
        return s;
    const auto length = [](Answer a) { return static_cast<std::int32_t>(a.task.tokens.size()); };
    if (Status s = append_column(writer, answers, length); !s) return s;
    if (Status s = append_column(writer, answers, [](Answer a) { return a.task.prompt; }); !s)
        return s;
    if (Status s = append_column(writer, answers, [](Answer a) { return a.task.sample; }); !s)
        return s;
    return append_column(writer, answers,
                         [](Answer a) { return a.finish == FinishReason::EndToken ? 0 : 1; });
}

Status append_rows(SafetensorsWriter& writer,
                   const ShardLayout& layout,
                   const std::vector<TrainingSample>& answers) {
    using Answer = const TrainingSample&;
    if (layout.top > 0) {
        if (Status s = append_all(
                writer, answers, [](Answer a) -> auto& { return a.top_ids; });
            !s)
            return s;
        const auto logprob = [](Answer a) -> auto& {
            return a.top_logprob;
        };
        if (Status s = append_all(writer, answers, logprob); !s) return s;
    }
    for (std::size_t i = 0; i < layout.hidden.size(); ++i) {
        const auto hidden = [i](Answer a) -> auto& {
            return a.hidden[i];
        };
        if (Status s = append_all(writer, answers, hidden); !s) return s;
    }
    return {};
}

}  // namespace

AnswerShards::AnswerShards(ShardLayout layout, std::span<const AnswerTask> tasks)
    : layout_{std::move(layout)} {
    PACE_CHECK(layout_.size >= 1, "a shard has answers");
    for (const AnswerTask& task : tasks) plan_[task.index / layout_.size].push_back(task);
}

std::string AnswerShards::path(std::int64_t shard) const {
    return layout_.folder + print("/shard-%05lld.safetensors", static_cast<long long>(shard));
}

Metadata AnswerShards::metadata_of(std::int64_t shard) const {
    Metadata metadata = layout_.metadata;
    metadata["prompts"] = digest_of(plan_.at(shard));
    return metadata;
}

Result<std::vector<AnswerTask>> AnswerShards::missing() const {
    std::vector<AnswerTask> tasks;
    for (const auto& [shard, planned] : plan_) {
        std::error_code ignored;
        if (!std::filesystem::exists(path(shard), ignored)) {
            tasks.insert(tasks.end(), planned.begin(), planned.end());
            continue;
        }
        const Result<SafetensorsFile> there = SafetensorsFile::open(path(shard));
        if (!there) return there.error();
        const Metadata& metadata = there.value().contents().metadata;
        if (Status s = compare(path(shard), metadata, metadata_of(shard)); !s) return s.error();
    }
    return tasks;
}

Status AnswerShards::add(TrainingSample answer) {
    const std::int64_t shard = answer.task.index / layout_.size;
    std::vector<TrainingSample>& made = open_[shard];
    made.push_back(std::move(answer));
    if (made.size() < plan_.at(shard).size()) return {};
    std::sort(made.begin(), made.end(), [](const TrainingSample& a, const TrainingSample& b) {
        return a.task.index < b.task.index;
    });
    Status written = write(shard, made);
    open_.erase(shard);
    return written;
}

Status AnswerShards::write(std::int64_t shard, const std::vector<TrainingSample>& answers) const {
    const std::int64_t tokens = begins_of(answers).back();
    const auto count = static_cast<std::int64_t>(answers.size());
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(
        path(shard), entries_of(layout_, count, tokens), metadata_of(shard));
    if (!writer) return writer.error();
    if (Status s = append_numbers(writer.value(), answers); !s) return s;
    if (Status s = append_rows(writer.value(), layout_, answers); !s) return s;
    return writer.value().finish();
}

}  // namespace paceline
