// Drives Chromium for the tests and benchmarks of the page: a command as a line of JSON in, its answer as a line of JSON out.
// Arguments: the browser, and the folder that build.sh fills.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";

const [, , executablePath, folder] = process.argv;
const require = createRequire(`${folder}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** Longer than any launch or drain on a busy computer. */
const WITHIN_MILLIS = 120_000;

// Chromium's sandbox needs user namespaces, which root's processes in a container mostly don't have.
const flags = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args: flags });

/** Sessions by name: each has cookies of its own. */
const sessions = new Map();

/** Runs in the page before its own scripts: notes when a view is complete, and tasks of more than 50 ms. */
function observe() {
  const noted = { viewed: 0, tasks: [] };
  window.croftNoted = noted;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) noted.tasks.push({ start: entry.startTime, millis: entry.duration });
  }).observe({ type: "longtask", buffered: true });
  const look = () => {
    if (noted.viewed === 0 && document.querySelector("main[aria-busy=false] table tbody tr")) {
      // The frame that shows it.
      requestAnimationFrame(() => { noted.viewed = performance.now(); });
      observer.disconnect();
    }
  };
  const observer = new MutationObserver(look);
  observer.observe(document, { childList: true, subtree: true, attributes: true });
}

const commands = {
  /** A window of its own, with cookies of its own. */
  async session({ name, origin, scheme = "light", width = 1280, height = 800 }) {
    const context = await browser.newContext({
      ignoreHTTPSErrors: true, colorScheme: scheme, viewport: { width, height }, reducedMotion: "reduce",
    });
    await context.addInitScript(observe);
    const page = await context.newPage();
    const errors = [];
    page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
    page.on("pageerror", (error) => errors.push(String(error)));
    page.on("request", (request) => { if (!request.url().startsWith(`${origin}/`)) errors.push(`a request of ${request.url()}`); });
    sessions.set(name, { context, page, errors });
    return {};
  },
  async end({ page, context }, { name }) { await page.close(); await context.close(); sessions.delete(name); return {}; },
  async goto({ page }, { url }) { await page.goto(url, { timeout: WITHIN_MILLIS }); return {}; },
  async url({ page }) { return { url: page.url() }; },
  /** The milliseconds from the start of the navigation to the first complete view. */
  async viewed({ page }) {
    await page.waitForFunction(() => window.croftNoted.viewed > 0, undefined, { timeout: WITHIN_MILLIS });
    return { millis: await page.evaluate(() => window.croftNoted.viewed) };
  },
  /** Waits until an element has the text, and returns the time at which the page had it, in milliseconds since 1970. */
  async appears({ page }, { selector, text = "" }) {
    const at = await page.evaluate(({ selector, text, within }) => new Promise((resolve) => {
      const has = () => [...document.querySelectorAll(selector)].some((one) => one.textContent.includes(text));
      const end = (at) => { observer.disconnect(); clearTimeout(timer); resolve(at); };
      const observer = new MutationObserver(() => { if (has()) end(Date.now()); });
      const timer = setTimeout(() => end(0), within);
      observer.observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
      if (has()) end(Date.now());
    }), { selector, text, within: WITHIN_MILLIS });
    if (at === 0) throw new Error(`no ${selector} has ${JSON.stringify(text)}: ${await page.innerText("body")}`);
    return { at };
  },
  /** Waits until no element has the text. */
  async vanishes({ page }, { selector, text = "" }) {
    const gone = ({ selector, text }) => ![...document.querySelectorAll(selector)].some((one) => one.textContent.includes(text));
    await page.waitForFunction(gone, { selector, text }, { timeout: WITHIN_MILLIS });
    return { at: Date.now() };
  },
  async text({ page }, { selector }) { return { text: await page.innerText(selector, { timeout: WITHIN_MILLIS }) }; },
  async count({ page }, { selector }) { return { count: await page.locator(selector).count() }; },
  async select({ page }, { selector, value }) { await page.locator(selector).first().selectOption(value); return {}; },
  /** By how many pixels the view is wider than the window, and words that are broken in two although a line has room for them. */
  async fits({ page }) {
    return page.evaluate(() => {
      const broken = [];
      const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
      const range = document.createRange();
      for (let text = texts.nextNode(); text !== null; text = texts.nextNode()) {
        const parent = text.parentElement;
        if (parent === null || !parent.checkVisibility() || parent.closest("svg, pre, code, .hidden") !== null) continue;
        for (const { index, 0: word } of text.data.matchAll(/[^\s\/:.,-]+/g)) {
          range.setStart(text, index);
          range.setEnd(text, index + word.length);
          const parts = [...range.getClientRects()];
          const lines = new Set(parts.map((line) => Math.round(line.top)));
          let block = parent;
          while (getComputedStyle(block).display.startsWith("inline")) block = block.parentElement;
          if (lines.size > 1 && parts.reduce((sum, part) => sum + part.width, 0) < block.clientWidth) broken.push(word);
        }
      }
      return { beyond: Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth), broken };
    });
  },
  async fill({ page }, { selector, text }) { await page.fill(selector, text); return {}; },
  async focus({ page }, { selector }) { await page.focus(selector); return {}; },
  async click({ page }, { selector }) { await page.click(selector); return {}; },
  async press({ page }, { keys }) {
    for (const key of keys) await page.keyboard.press(key);
    return {};
  },
  /** Presses Tab, or with `back` Shift+Tab, `times` times: the elements that get the focus, and whether one can see that. */
  async tab({ page }, { times, back = false }) {
    const stops = [];
    for (let at = 0; at < times; at++) {
      await page.keyboard.press(back ? "Shift+Tab" : "Tab");
      stops.push(await page.evaluate(() => {
        const one = document.activeElement;
        const style = getComputedStyle(one);
        const name = one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? one.textContent ?? "";
        return { tag: one.tagName.toLowerCase(), name: name.trim().slice(0, 80), href: one.getAttribute("href") ?? "", isVisible: style.outlineStyle !== "none" };
      }));
    }
    return { stops };
  },
  /** The findings of axe-core: rule, impact, elements. */
  async axe({ page }) {
    if (!await page.evaluate(() => "axe" in window)) await page.evaluate(axe);
    const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    return { violations: found.violations.map(({ id, impact, nodes }) => ({ id, impact, elements: nodes.map((node) => `${node.target} ${node.html.slice(0, 200)}`).slice(0, 5) })) };
  },
  /** Scrolls an element to its end and back by `step` pixels a frame: the longest task in that time, in milliseconds; 0 if none took 50. */
  async scroll({ page }, { selector, step = 240 }) {
    const from = await page.evaluate(() => performance.now());
    const frames = await page.evaluate(({ selector, step }) => new Promise((resolve) => {
      const one = document.querySelector(selector);
      let [frames, by] = [0, step];
      const next = () => {
        const before = one.scrollTop;
        one.scrollTop += by;
        frames += 1;
        if (one.scrollTop === before && by < 0) { setTimeout(() => resolve(frames), 200); return; }
        if (one.scrollTop === before) by = -step;
        requestAnimationFrame(next);
      };
      next();
    }), { selector, step });
    const tasks = await page.evaluate((from) => window.croftNoted.tasks.filter((task) => task.start >= from), from);
    return { frames, longest: tasks.reduce((longest, task) => Math.max(longest, task.millis), 0) };
  },
  /**
   * The page as it is printed: texts that the screen shows and the paper lacks, parts that are clipped, its text, and the bytes of the PDF.
   * Controls may be missing: they do nothing on paper.
   */
  async print({ page }) {
    const content = () => {
      const shown = (one) => one.checkVisibility({ visibilityProperty: true }) && one.closest(".hidden, header, form, .timebar, .filter, .controls") === null;
      const texts = new Set();
      for (const one of document.querySelectorAll("main *")) {
        if (one.closest("button, td, th") !== null || !shown(one)) continue;
        // Ages and counts may change in between.
        const parts = [...one.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE && part.data.trim() !== "");
        for (const part of parts) texts.add(part.data.trim().replace(/\d+/g, "0"));
      }
      return [...texts];
    };
    const onScreen = await page.evaluate(content);
    await page.emulateMedia({ media: "print" });
    await page.evaluate(() => new Promise((resolve) => {
      dispatchEvent(new Event("beforeprint"));
      requestAnimationFrame(() => requestAnimationFrame(resolve));
    }));
    const onPaper = new Set(await page.evaluate(content));
    const clipped = await page.evaluate(() => {
      const found = [];
      for (const one of document.querySelectorAll(".scroll, main table, main th, main td")) {
        const style = getComputedStyle(one);
        const hides = style.overflowX !== "visible" || style.overflowY !== "visible" || style.contain.includes("paint");
        if (hides && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)) found.push(`${one.tagName} ${one.textContent.slice(0, 80)}`);
        if (one.getBoundingClientRect().right > document.documentElement.clientWidth + 1) found.push(`beyond the page: ${one.tagName} ${one.textContent.slice(0, 80)}`);
      }
      for (const table of document.querySelectorAll("main table")) {
        const rows = table.querySelectorAll("tbody tr:not([aria-hidden])").length;
        if (rows !== Math.min(5000, Number(table.getAttribute("aria-rowcount")) - 1)) found.push(`${rows} rows of ${table.caption.textContent}`);
      }
      return found;
    });
    const text = await page.innerText("main");
    const pdf = await page.pdf({ format: "A4", landscape: true, printBackground: true });
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    await page.emulateMedia({ media: null });
    return { missing: onScreen.filter((one) => !onPaper.has(one)), clipped, text, isPdf: pdf.subarray(0, 5).toString() === "%PDF-", bytes: pdf.length };
  },
  async shot({ page }, { path, full = false }) { await page.screenshot({ path, fullPage: full }); return {}; },
  /** What was wrong since the last call. */
  async errors({ errors }) { return { errors: errors.splice(0) }; },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: command, session, ...parameters } = JSON.parse(line);
  try {
    const answer = command === "session" ? await commands.session({ name: session, ...parameters })
      : await commands[command](sessions.get(session), { name: session, ...parameters });
    console.log(JSON.stringify(answer));
  } catch (error) {
    console.log(JSON.stringify({ error: `${command} ${JSON.stringify(parameters)}: ${error.message}` }));
  }
}
await browser.close();
