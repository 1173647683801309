#include "model/weights/huggingface/json_file.hpp"

#include <fmt/core.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "ipc/base/json_fault.hpp"
#include "model/weights/json_builder.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

/// What follows the name of the file.
std::string json_complaint(const JsonRefusal& refusal, std::string_view source) {
    switch (refusal.fault) {
        case JsonFault::Syntax:
            return "is not JSON: " + json_fault(source, refusal.position, refusal.text);
        case JsonFault::Binary:
            return "holds binary data";
        case JsonFault::Depth:
            return fmt::format("is nested more than {} deep", kJsonDepthMax);
        case JsonFault::DoubleKey:
            return "has the key " + paceline::quoted_text(refusal.text) + " twice";
        case JsonFault::None:
        case JsonFault::Values:  // the size of the file limits them
        case JsonFault::Keys:
            break;
    }
    return "is not JSON";
}

}  // namespace

Result<std::optional<std::string>> read_text_file(const std::string& path, std::size_t bytes_max) {
    if (!MappedFile::exists(path)) return std::optional<std::string>{};
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    const std::span<const std::byte> bytes = file.value().bytes();
    if (bytes.size() > bytes_max) {
        return Error{Errc::BadFile, fmt::format("{} has {} bytes; at most {} are read", path,
                                                bytes.size(), bytes_max)};
    }
    return std::optional{std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

Result<json> parse_json_object(std::string_view text, const std::string& file) {
    JsonBuilder<json> builder{{.depth = kJsonDepthMax}};
    const bool whole = json::sax_parse(text.begin(), text.end(), &builder);
    if (!whole) return Error{Errc::BadFile, file + " " + json_complaint(builder.refusal(), text)};
    if (!builder.root().is_object()) {
        return Error{Errc::BadFile, file + " holds no JSON object, but something else"};
    }
    return std::move(builder.root());
}

}  // namespace paceline::huggingface
