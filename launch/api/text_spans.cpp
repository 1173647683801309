#include "launch/api/text_spans.hpp"

#include <nlohmann/json.hpp>

namespace paceline::serve {

nlohmann::ordered_json text_spans(const AnswerPiece& piece) {
    using Json = nlohmann::ordered_json;
    Json spans = Json::array();
    const auto add = [&](std::size_t begin, std::size_t end, std::size_t tokens,
                         TokenOrigin origin) {
        spans.push_back({{"text", piece.text.substr(begin, end - begin)},
                         {"tokens", tokens},
                         {"accepted", origin != TokenOrigin::Target},
                         {"by", name_of(origin)}});
    };
    std::size_t written = 0;
    for (std::size_t i = 0; i < piece.ids.size();) {
        const std::size_t first = i;
        while (i < piece.ids.size() && piece.origins[i] == piece.origins[first]) ++i;
        add(written, piece.text_ends[i - 1], i - first, piece.origins[first]);
        written = piece.text_ends[i - 1];
    }
    if (written < piece.text.size()) add(written, piece.text.size(), 0, TokenOrigin::Target);
    return spans;
}

}  // namespace paceline::serve
