// ResponsesEvents: responses of POST /v1/responses.
//
//     response.created, response.in_progress
//     response.output_item.added, then
//         of a message    content_part.added, output_text.delta..., .done, content_part.done
//         of a call       function_call_arguments.delta..., .done
//         of a thought    reasoning_text.delta..., .done
//     response.output_item.done
//     response.completed | response.incomplete (a limit) | response.failed
//
// Each event has its name, its place in the row (sequence_number), the ID of its item and indices.
// The last one has the whole response with usage; there is no [DONE]. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "launch/api/tools/block_form.hpp"

namespace paceline::serve {

class ResponsesEvents final : public BlockForm {
public:
    ResponsesEvents(ResponseHead head, const PreparedAnswers& prepared);

    [[nodiscard]] std::string begin() override;
    [[nodiscard]] std::string end() override;
    [[nodiscard]] std::string body() const override;
    [[nodiscard]] std::string failure(const ApiError& error) override;

private:
    using Json = nlohmann::ordered_json;

    [[nodiscard]] std::string opened(std::size_t block) override;
    [[nodiscard]] std::string delta(std::size_t block, const std::string& text) override;
    [[nodiscard]] std::string closed(std::size_t block) override;
    [[nodiscard]] std::string event(const char* type, Json json);
    [[nodiscard]] std::string item_id(std::size_t block) const;
    [[nodiscard]] Json item(std::size_t block, bool whole) const;
    [[nodiscard]] Json response(const char* status) const;
    [[nodiscard]] Json usage() const;
    [[nodiscard]] const char* end_status() const { return is_cut() ? "incomplete" : "completed"; }

    Json repeated_;
    std::int64_t sequence_ = 0;
};

}  // namespace paceline::serve
