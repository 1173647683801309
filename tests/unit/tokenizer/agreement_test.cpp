// The corpus covers all planes, white space, digits, code, emoji, marks and invalid UTF-8.
#include <doctest/doctest.h>

#include "tests/unit/tokenizer/fixtures.hpp"

namespace paceline {

TEST_CASE("smollm: every line of the corpus gives the ids of the Hugging Face library") {
    fixtures::check_agreement(fixtures::tokenizer("smollm"), "smollm");
}

TEST_CASE("gpt2: every line of the corpus gives the ids of the Hugging Face library") {
    fixtures::check_agreement(fixtures::tokenizer("gpt2"), "gpt2");
}

TEST_CASE("llama3: every line of the corpus gives the ids of the Hugging Face library") {
    fixtures::check_agreement(fixtures::tokenizer("llama3"), "llama3");
}

TEST_CASE("qwen2: every line of the corpus gives the ids of the Hugging Face library") {
    fixtures::check_agreement(fixtures::tokenizer("qwen2"), "qwen2");
}

TEST_CASE("the chat template of SmolLM2 gives the ids of jinja2 and the Hugging Face library") {
    fixtures::check_chat(fixtures::tokenizer("smollm"), fixtures::tokenizer_data("smollm"),
                         "smollm");
}

}  // namespace paceline
