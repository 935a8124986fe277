// The functions through which Rust holds a model; see library.rs for their contract.
#include "Vmodel.h"
#include "verilated.h"
#if VM_TRACE_FST
#include "verilated_fst_c.h"
#endif
#include <memory>

namespace {

struct Instance final {
    // A context of its own keeps instances independent; it must outlive the model.
    VerilatedContext context;
    std::unique_ptr<Vmodel> model;
#if VM_TRACE_FST
    std::unique_ptr<VerilatedFstC> trace;
#endif
};

Instance& of(void* instance) { return *static_cast<Instance*>(instance); }

}  // namespace

extern "C" {

#define EXPORT __attribute__((visibility("default")))

EXPORT void* verilated_create() {
    auto* const instance = new Instance;
#if VM_TRACE_FST
    instance->context.traceEverOn(true);
#endif
    instance->model = std::make_unique<Vmodel>(&instance->context, "");
    // Verilator sees an edge only against an evaluation before it.
    instance->model->eval();
    return instance;
}

EXPORT void verilated_destroy(void* instance) {
#if VM_TRACE_FST
    if (of(instance).trace) of(instance).trace->close();
#endif
    of(instance).model->final();
    delete &of(instance);
}

EXPORT void verilated_ports(void* instance, void** ports) {
    Vmodel& model = *of(instance).model;
    // PORTS
    (void)model;
    (void)ports;
}

EXPORT void verilated_eval(void* instance) { of(instance).model->eval(); }

EXPORT void verilated_step(void* instance, unsigned char* clock, unsigned long long count) {
    Vmodel& model = *of(instance).model;
    while (count--) {
        *clock = 1;
        model.eval();
        *clock = 0;
        model.eval();
    }
}

EXPORT int verilated_trace_open(void* instance, const char* path) {
#if VM_TRACE_FST
    auto& trace = of(instance).trace;
    if (!trace) {
        trace = std::make_unique<VerilatedFstC>();
        of(instance).model->trace(trace.get(), 99);
    }
    if (trace->isOpen()) trace->close();
    trace->open(path);
    return trace->isOpen();
#else
    (void)instance;
    (void)path;
    return 0;
#endif
}

EXPORT void verilated_trace_dump(void* instance, unsigned long long time) {
#if VM_TRACE_FST
    if (of(instance).trace && of(instance).trace->isOpen()) of(instance).trace->dump(static_cast<uint64_t>(time));
#else
    (void)instance;
    (void)time;
#endif
}

EXPORT void verilated_trace_close(void* instance) {
#if VM_TRACE_FST
    if (of(instance).trace) of(instance).trace->close();
#else
    (void)instance;
#endif
}

}
