// What the tests of the emulated device share: every order of its threads, and what it reports.
// On a real GPU, which has an order of its own, there is but one.
#pragma once

#include <string>
#include <vector>

#ifdef PACELINE_EMULATED_DEVICE
#include "model/kernels/cuda/device.cuh"
#include "model/kernels/cuda/launch.cuh"
#include "tests/emulated/cuda/order.hpp"
#endif
#include "model/kernels/cuda/runtime.hpp"
#include "tests/unit/cuda/device_arrays.hpp"

namespace paceline::cuda {

#ifdef PACELINE_EMULATED_DEVICE

/// Sets an order of the emulated threads; the usual one again at the end.
class OrderScope {
public:
    explicit OrderScope(emulated::Order order) { emulated::set_order(order); }
    ~OrderScope() { emulated::set_order({}); }
    OrderScope(const OrderScope&) = delete;
    OrderScope& operator=(const OrderScope&) = delete;
};

/// Orders to run a kernel in; a right kernel gives the same in all of them.
inline std::vector<emulated::Order> all_orders() {
    using Kind = emulated::Order::Kind;
    return {{Kind::Forward, 0}, {Kind::Backward, 0}, {Kind::Shuffled, 1}, {Kind::Shuffled, 2}};
}

#else

namespace emulated {
struct Order {};
}  // namespace emulated
class OrderScope {
public:
    explicit OrderScope(emulated::Order /*order*/) {}
    ~OrderScope() {}  // as the other: no warning about an unused variable
    OrderScope(const OrderScope&) = delete;
    OrderScope& operator=(const OrderScope&) = delete;
};
inline std::vector<emulated::Order> all_orders() {
    return {{}};
}

#endif

/// What DeviceError says that `work` throws; empty if it throws none.
template <class Work>
std::string error_of(const Work& work) {
    try {
        work();
    } catch (const DeviceError& error) {
        return error.what();
    }
    return {};
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace paceline::cuda
