#include "model/weights/gguf/gguf_shards.hpp"

#include <charconv>
#include <fmt/core.h>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "model/weights/gguf/gguf_keys.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr std::size_t kDigits = 5;

std::optional<int> five_digits(std::string_view text) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + kDigits, number);
    if (error != std::errc{} || end != text.data() + kDigits || number < 1) return std::nullopt;
    return number;
}

Error bad(const std::string& file, const std::string& what) {
    return {Errc::BadFile, file + ": " + what};
}

/// What file `index` of `count` says of itself.
Status check_place(GgufKeys& keys, const std::string& file, int index, int count) {
    const auto own_count = keys.find_int("split.count", {0, 65'535});
    const auto own_index = keys.find_int("split.no", {0, 65'535});
    if (!keys.status()) return keys.status();
    if (!own_count || !own_index)
        return bad(file, fmt::format("named as shard {} of {}, but has no split.no or split.count",
                                     index + 1, count));
    if (*own_count != count)
        return bad(file, fmt::format("split.count is {}, but its name and neighbours say {} shards",
                                     *own_count, count));
    if (*own_index != index)
        return bad(file, fmt::format("split.no is {}, but shard {} of {} has {}: its file was "
                                     "renamed, or mixed up with another shard",
                                     *own_index, index + 1, count, index));
    return {};
}

/// A file alone that says that it is one of several.
Status check_alone(GgufKeys& keys, const std::string& file) {
    const auto count = keys.find_int("split.count", {0, 65'535}).value_or(1);
    const auto index = keys.find_int("split.no", {0, 65'535}).value_or(0);
    if (!keys.status()) return keys.status();
    if (count <= 1) return {};
    return bad(file,
               fmt::format("shard {} of {} (split.no, split.count); shards are found by their "
                           "names, so it must be called NAME-{:05}-of-{:05}.gguf",
                           index + 1, count, index + 1, count));
}

Status check_tensors(std::span<const GgufBytes> files, const std::vector<GgufHeader>& headers) {
    std::unordered_map<std::string_view, const std::string*> holders;
    for (std::size_t i = 0; i < files.size(); ++i) {
        // A custom alignment is written to the first shard only, so the others could be misread.
        if (headers[i].alignment != 32)
            return Error{Errc::Unsupported,
                         fmt::format("{}: general.alignment is {}; shards must have 32",
                                     files[i].file, headers[i].alignment)};
        for (const GgufTensorInfo& tensor : headers[i].tensors) {
            const auto [other, is_new] = holders.emplace(tensor.name, &files[i].file);
            if (!is_new)
                return bad(files[i].file, "tensor " + quoted_text(tensor.name) + " is in " +
                                              *other->second + " too");
        }
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
        GgufKeys keys(headers[i], files[i].file);
        const auto total = keys.find_int("split.tensors.count", {0, INT32_MAX});
        if (!keys.status()) return keys.status();
        if (total && static_cast<std::size_t>(*total) != holders.size())
            return bad(files[i].file,
                       fmt::format("split.tensors.count is {}, but the {} shards have {} tensors",
                                   *total, files.size(), holders.size()));
    }
    return {};
}

}  // namespace

std::string GgufShardName::path(int of_number) const {
    return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, of_number, count);
}

std::optional<GgufShardName> parse_shard_name(const std::string& path) {
    constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kSuffix.size();
    if (path.size() <= kTail) return std::nullopt;
    const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
    const auto number = five_digits(tail.substr(1));
    const auto count = five_digits(tail.substr(1 + kDigits + kOf.size()));
    if (tail.front() != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf ||
        !tail.ends_with(kSuffix) || !number || !count || *number > *count)
        return std::nullopt;
    return GgufShardName{path.substr(0, path.size() - kTail), *number, *count};
}

Result<std::vector<MappedFile>> open_shards(MappedFile opened) {
    std::vector<MappedFile> files;
    const auto name = parse_shard_name(opened.path());
    if (!name) {
        files.push_back(std::move(opened));
        return files;
    }
    if (name->count > kGgufShardsMax)
        return bad(opened.path(), fmt::format("one of {} shards; at most {} are opened",
                                              name->count, kGgufShardsMax));
    for (int number = 1; number <= name->count; ++number) {
        if (number == name->number) {
            files.push_back(std::move(opened));
            continue;
        }
        Result<MappedFile> file = MappedFile::open(name->path(number));
        if (!file)
            return Error{file.error().code, fmt::format("shard {} of {} of the model: {}", number,
                                                        name->count, file.error().what)};
        files.push_back(std::move(file).value());
    }
    return files;
}

Result<std::vector<GgufHeader>> parse_shards(std::span<const GgufBytes> files) {
    const bool split = files.size() > 1;
    std::vector<GgufHeader> headers;
    headers.reserve(files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
        Result<GgufHeader> header =
            parse_gguf(files[i].bytes, files[i].file, split ? GgufPart::Shard : GgufPart::Whole);
        if (!header) return header.error();
        headers.push_back(std::move(header).value());
        GgufKeys keys(headers.back(), files[i].file);
        const Status placed = split ? check_place(keys, files[i].file, static_cast<int>(i),
                                                  static_cast<int>(files.size()))
                                    : check_alone(keys, files[i].file);
        if (!placed) return placed.error();
    }
    if (!split) return headers;
    if (Status s = check_tensors(files, headers); !s) return s.error();
    return headers;
}

}  // namespace paceline
