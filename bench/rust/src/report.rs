//! What a command prints: one line of JSON.

/// Metric name, value, unit.
pub type Metric = (&'static str, f64, &'static str);

/// Figures, and beside them what pictures want, as JSON already.
pub struct Report {
    metrics: Vec<Metric>,
    beside: Vec<(&'static str, String)>,
}

impl From<Vec<Metric>> for Report {
    fn from(metrics: Vec<Metric>) -> Self {
        Self { metrics, beside: Vec::new() }
    }
}

impl Report {
    /// Adds `json` under `name`.
    pub fn with(mut self, name: &'static str, json: String) -> Self {
        self.beside.push((name, json));
        self
    }

    /// The line.
    pub fn json(&self) -> String {
        let metrics: Vec<String> =
            self.metrics.iter().map(|(name, value, unit)| format!("\"{name}\": [{value:?}, \"{unit}\"]")).collect();
        let metrics = format!("\"metrics\": {{{}}}", metrics.join(", "));
        let beside = self.beside.iter().map(|(name, json)| format!("\"{name}\": {json}"));
        format!("{{{}}}", std::iter::once(metrics).chain(beside).collect::<Vec<_>>().join(", "))
    }
}
