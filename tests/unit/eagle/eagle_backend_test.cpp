// EagleBackend around a layer on the host; matrices that it refuses.
#include "tests/unit/eagle/eagle_suite.hpp"

namespace paceline::testing {
namespace {

struct HostEagle {
    static constexpr std::size_t kTokens = 40;
    static constexpr std::size_t kLongTokens = 60;
    static constexpr const char* kFixtures[] = {"llama-q4_1", "llama-untied-f16"};

    static std::unique_ptr<EagleBackend> make(const EagleFixture& eagle, CpuOptions options) {
        return eagle.backend(std::move(options));
    }
};

TEST_CASE_TEMPLATE_INVOKE(EagleAgrees, HostEagle);
TEST_CASE_TEMPLATE_INVOKE(EagleRows, HostEagle);
TEST_CASE_TEMPLATE_INVOKE(EagleTrees, HostEagle);
TEST_CASE_TEMPLATE_INVOKE(EagleFeatures, HostEagle);
TEST_CASE_TEMPLATE_INVOKE(EagleCancelled, HostEagle);

TEST_CASE("matrices that do not fit an EAGLE draft are refused with their sizes") {
    const EagleFixture eagle{"llama-f32", {1, 2}};
    const int dim = eagle.target.config().dim;
    CHECK(check_eagle(eagle.part.spec, dim).ok());
    EagleSpec spec = eagle.part.spec;
    spec.fuse.pop_back();
    CHECK(check_eagle(spec, dim).error().what.find("must have") != std::string::npos);
    spec = eagle.part.spec;
    spec.layers.pop_back();
    CHECK(check_eagle(spec, dim).error().what.find("1 layers") != std::string::npos);
}

}  // namespace
}  // namespace paceline::testing
