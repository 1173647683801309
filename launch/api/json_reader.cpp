#include "launch/api/json_reader.hpp"

#include <fmt/core.h>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "model/weights/json_builder.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

ApiError bad_json(const std::string& what) {
    return {.status = 400, .message = "the body " + what, .code = "invalid_json"};
}

ApiError body_refusal(const JsonRefusal& refusal) {
    switch (refusal.fault) {
        case JsonFault::Syntax:
            return bad_json(fmt::format("is not valid JSON, at byte {}", refusal.position));
        case JsonFault::Depth:
            return bad_json(fmt::format("is nested deeper than {} levels", kJsonDepthMax));
        case JsonFault::Values:
            return bad_json(fmt::format("has more than {} values", kJsonValuesMax));
        case JsonFault::Keys:
            return bad_json(fmt::format("has an object with more than {} keys", kJsonKeysMax));
        case JsonFault::DoubleKey:
            return bad_json("has the key '" + visible(refusal.text) + "' twice in one object");
        case JsonFault::None:
        case JsonFault::Binary:
            break;
    }
    return bad_json("is not JSON");
}

}  // namespace

ApiResult<json> read_json(std::string_view text) {
    JsonBuilder<json> builder{
        {.depth = kJsonDepthMax, .values = kJsonValuesMax, .keys = kJsonKeysMax}};
    const bool whole = json::sax_parse(text.begin(), text.end(), &builder);
    if (builder.refusal().fault != JsonFault::None) return body_refusal(builder.refusal());
    if (!whole) return bad_json("is not valid JSON");
    return std::move(builder.root());
}

ApiResult<json> read_json_object(std::string_view text) {
    ApiResult<json> read = read_json(text);
    if (read && !read.value().is_object()) return bad_json("is not a JSON object");
    return read;
}

}  // namespace paceline::serve
